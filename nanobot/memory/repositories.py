"""Where the versions lie: a repository for each scope, and the split of the one that was for all.

The owner's is `memory.git` in the state folder, those of the others are below `versions`. Earlier
versions of nanobot kept the files of all scopes in the owner's, with one numbering; the folder
`versions` says that this is over. Its making is the split:

- One rename puts it in place with all repositories in it: after a crash before that, the split
  begins again.
- The owner's repository stays as it is, byte for byte: the commits that people were shown are still
  found there.
- A version keeps its number, which people were shown as well; new ones go on from the highest of
  their scope.
- Branches of other devices are split alike: devices that split the same branch come to the same
  commits.
"""

from __future__ import annotations

import os
import re
import shutil
from datetime import datetime
from pathlib import Path

from loguru import logger
from msgspec import Struct

from nanobot.io import storage_errors, sync_folder
from nanobot.memory.git import Damaged, Draft, Repository
from nanobot.memory.version import CommitMessage, scope_of
from nanobot.tasks import paced

_OWNERS, _OTHERS = "memory.git", "versions"
_KINDS = ("people", "groups")
_NAMED = re.compile(r"(.+)\.git(?:\.old)?")
"""A repository, also one that is being replaced."""


def repository_of(state: Path, prefix: str) -> Path:
    """Where the repository of the scope with this prefix lies, in the state folder `state`."""
    return state / _OTHERS / f"{prefix.rstrip('/')}.git" if prefix else state / _OWNERS


def repositories(state: Path) -> dict[str, Path]:
    """The prefix of each scope that has versions, with the place of its repository; the owner's
    first. Blocks."""
    found = {"": state / _OWNERS} if os.path.lexists(state / _OWNERS) else {}
    for path in sorted((state / _OTHERS).glob("*/*")):
        if name := _NAMED.fullmatch(path.name):
            prefix = f"{path.parent.name}/{name[1]}/"
            if _is_prefix(prefix):
                found[prefix] = repository_of(state, prefix)
    return found


def is_split(state: Path) -> bool:
    """Whether scopes have repositories of their own; one system call."""
    return (state / _OTHERS).exists()


def split(state: Path) -> None:
    """Give the other scopes what the owner's repository has of theirs. The caller excludes all who
    work on versions.

    Where an old version is damaged, the other scopes begin anew. Raises `StorageError`.
    """
    others, new = state / _OTHERS, state / f"{_OTHERS}.new"
    with storage_errors(others):
        shutil.rmtree(new, ignore_errors=True)
        try:
            new.mkdir(mode=0o700)
            if _split(Repository(state / _OWNERS), new):
                logger.info("the versions of other scopes than the owner's are in {} now", others)
                os.sync()
        except Damaged as error:
            logger.error("{}; new versions begin for other scopes than the owner's", error)
            shutil.rmtree(new)
            new.mkdir(mode=0o700)
        except BaseException:  # a full disk must not stay full of it
            shutil.rmtree(new, ignore_errors=True)
            raise
        new.rename(others)
        sync_folder(state)


def _split(whole: Repository, target: Path) -> int:
    """Write the other scopes' repositories into the folder `target`; how many there are."""
    parts: dict[str, Draft] = {}
    tips: dict[str, dict[str, str]] = {}
    for branch in whole.branches() if whole.tip() else ():
        for commit, contents in whole.history(branch):
            inside: dict[str, dict[str, bytes | None]] = {
                CommitMessage.parse(commit.message).scope: {}
            }
            for name, content in contents.items():
                prefix = "".join(f"{part}/" for part in name.split("/")[:2])
                inside.setdefault(prefix, {})[name] = content
            for prefix in filter(_is_prefix, inside):
                if prefix not in parts:
                    path = target / f"{prefix.rstrip('/')}.git"
                    path.parent.mkdir(mode=0o700, exist_ok=True)
                    parts[prefix] = Draft(path, whole.branch)
                    tips[prefix] = {}
                parent = tips[prefix].get(branch, "")
                tips[prefix][branch] = parts[prefix].store(
                    parent, inside[prefix], commit.message, commit.when
                )
    for prefix, part in paced(parts.items()):
        part.finish(tips[prefix])
    whole.close()
    return len(parts)


def _is_prefix(prefix: str) -> bool:
    return bool(prefix) and scope_of(f"{prefix}USER.md") == prefix


class Newest(Struct, frozen=True):
    """The newest version: its number, its time, and how many files there are."""

    number: int
    when: datetime
    files: int


def read_newest(path: Path) -> Newest | None:
    """The newest version in a repository, every file of it read; None where there is none. Changes
    nothing. Raises `StorageError` for what is damaged."""
    repository = Repository(path)
    try:
        tip = repository.tip()
        if not tip:
            return None
        newest = repository.commit(tip)
        files = dict(repository.changed("", newest.tree))
        for blob in set(files.values()):
            repository.content(blob)
        return Newest(CommitMessage.parse(newest.message).number, newest.when, len(files))
    finally:
        repository.close()
