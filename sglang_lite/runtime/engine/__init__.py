"""The in-process engine: starts, owns and stops the parts of the runtime."""
