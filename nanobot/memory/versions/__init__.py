"""Versions of the long-term files: every change, who made it and why, and how to undo it."""
