"""Programs that show the language at work."""
