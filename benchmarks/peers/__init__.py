"""Programs that are measured beside the engine."""
