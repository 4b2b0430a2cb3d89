"""The whole history with other words in it: what erasing asks of the versions.

The new repository is built beside the old one and put in its place; a crash in between leaves the
old one or the new one. Numbers, dates and authors stay, a version in which nothing is left to
change stays as an empty one. Nothing of the old one remains: the other devices' branches and all
old objects go with its folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.disk import sync_folder
from nanobot.errors import StorageError
from nanobot.memory.versions.git import Repository, build, make_commit, write_file
from nanobot.memory.versions.version import Message

if TYPE_CHECKING:
    from dulwich.objects import ShaFile

KEPT = ("pushed.json", "inherited.json")
"""Files of a repository that say what other devices have, and hold no words."""


def recast(repository: Repository, redact: Callable[[str], str]) -> int:
    """Put every text of the history through `redact`; return how many versions changed."""
    old = repository.path
    new = Repository(_beside(old, "new"))
    try:
        shutil.rmtree(new.path, ignore_errors=True)
        build(new.path, repository.branch)
        changed, tip = _copy(repository, new, redact)
        for name in KEPT:
            with suppress(FileNotFoundError):
                write_file(new.path / name, repository.read_file(name))
        new.set_tip(tip)
        new.close()
        repository.close()
        old.rename(_beside(old, "old"))
        finish(old)
    except OSError as error:
        raise StorageError.of(old, error) from error
    return changed


def finish(path: Path) -> None:
    """Complete a replacement that was under way, or forget one that never got that far."""
    old, new = _beside(path, "old"), _beside(path, "new")
    if old.exists() and not path.exists():  # the new one was complete before the old one moved
        new.rename(path)
        sync_folder(path.parent)
    for rest in (old, new):
        if rest.exists():
            shutil.rmtree(rest)
            sync_folder(path.parent)


def _copy(source: Repository, target: Repository, redact: Callable[[str], str]) -> tuple[int, str]:
    changed, parent = 0, ""
    objects: dict[bytes, ShaFile] = {}
    cleaned: dict[str, bytes] = {}
    trees: dict[str, tuple[str, bool]] = {}
    for commit in reversed(list(source.chain(source.tip()))):
        if commit.tree not in trees:
            trees[commit.tree] = _tree(source, target, commit.tree, redact, cleaned, objects)
        tree, touched = trees[commit.tree]
        before = Message.parse(commit.message)
        after = before.redacted(redact)
        text = commit.message if after == before else after.text
        made = make_commit(parent, tree, text, commit.when)
        objects[made.id] = made
        parent = made.id.decode()
        changed += touched or after != before
    target.objects.add_objects([(found, None) for found in objects.values()])
    sync_folder(target.path / "objects/pack")
    return changed, parent


def _tree(
    source: Repository,
    target: Repository,
    tree: str,
    redact: Callable[[str], str],
    cleaned: dict[str, bytes],
    objects: dict[bytes, ShaFile],
) -> tuple[str, bool]:
    files, touched = {}, False
    for path, blob in source.files(tree).items():
        content = source.content(blob)
        if blob not in cleaned:
            text = redact(content.decode("utf-8", "surrogateescape"))
            cleaned[blob] = text.encode("utf-8", "surrogateescape")
        files[path] = cleaned[blob]
        touched = touched or cleaned[blob] != content
    made: list[ShaFile] = []
    identity = target.tree_with("", files, made)
    objects.update({found.id: found for found in made})
    return identity, touched


def _beside(path: Path, kind: str) -> Path:
    return path.with_name(f"{path.name}.{kind}")
