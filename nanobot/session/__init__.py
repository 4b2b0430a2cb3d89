"""Conversations on disk, one append-only text file each, and their windows for prompts."""
