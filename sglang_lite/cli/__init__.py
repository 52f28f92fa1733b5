"""Commands: what people type; sits on top of every other package."""
