"""nanobot: a personal chat agent that never loses a message and remembers in plain text."""

__version__ = "0.1.0"
