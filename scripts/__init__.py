"""Tools for maintainers, which are not installed."""
