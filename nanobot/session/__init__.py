"""Conversations on disk: one append-only text file each, and what of it belongs in the prompt."""
