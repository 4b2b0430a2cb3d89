"""The language models: a small port and its adapters."""
