"""Maintenance of a home over years: backups, free disk space, retention, memory use."""

SNAPSHOT = "state/backup"
"""The folder of a snapshot in a home, until it is packed."""
UNFINISHED = ".restore-under-way.json"
"""In a home during a restore, while its entries are swapped (see `restore`)."""
