"""Looking after a home that is in use for years: room on its disk, retention."""

SNAPSHOT = "state/backup"
"""In a home: where what is taken together stands until it is packed."""
UNFINISHED = ".restore-under-way.json"
"""In a home whose entries are changing places with those of a backup (see `restore`)."""
