"""Offline stand-in for a language model."""
