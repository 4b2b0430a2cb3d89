"""Looking after a home that is in use for years: room on its disk, retention."""
