"""nanobot: a personal chat agent that never loses a message and keeps its memory in plain text."""

__version__ = "0.1.0"
