"""Tools for maintainers. None of them is installed."""
