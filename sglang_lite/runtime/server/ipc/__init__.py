"""The scheduler in a process of its own: messages, both ends, its life."""
