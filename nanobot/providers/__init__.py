"""Language models: a small port and its adapters."""
