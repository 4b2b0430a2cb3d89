"""Whether the newest version of memory could be used."""

from __future__ import annotations

from nanobot.memory.versions.git import Commit, Repository


def read_newest(repository: Repository) -> tuple[Commit, int] | None:
    """The newest version and how many files it has, every one of them read; None where there is
    none. Raises `StorageError` for what is damaged."""
    repository.check()
    tip = repository.tip()
    if not tip:
        return None
    newest = repository.commit(tip)
    files = repository.files(newest.tree)
    for blob in set(files.values()):
        repository.content(blob)
    return newest, len(files)
