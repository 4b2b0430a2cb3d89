"""Whose words a memory rests on: what may become one and what waits for its person."""
