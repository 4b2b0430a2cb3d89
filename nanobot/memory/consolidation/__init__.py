"""Consolidation: the oldest part of a conversation becomes memory."""
