"""The runtime: executes request trees on a model; never imports the language."""
