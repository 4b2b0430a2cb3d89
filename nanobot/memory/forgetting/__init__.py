"""Forgetting: out of memory, and out of everything that is stored."""
