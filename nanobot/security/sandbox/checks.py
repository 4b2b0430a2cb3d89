"""What a sandbox is not asked to do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nanobot.security.sandbox.values import Confined, SandboxRefused

_SYSTEMS = tuple(
    Path(name)
    for name in (
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/lib",
        "/lib64",
        "/proc",
        "/sbin",
        "/sys",
        "/usr",
    )
)
_TOO_MUCH = frozenset(map(Path, ("/", "/home", "/run", "/tmp", "/var", "/opt", "/mnt")))  # noqa: S108


def refuse_unless_usable(confined: Confined, private: Sequence[Path]) -> None:
    """Raise `SandboxRefused` for what would give a command more than was meant. Blocks briefly.

    `private` are folders of ours: a workspace may lie in one; nothing that is given holds one.
    """
    for name in (*confined.read_only, *confined.hidden):
        _refuse_unless_below(name)
    ours = [_real(path) for path in private]
    for folder in (confined.workspace, *confined.writable):
        _refuse_unless_folder(folder)
        _refuse_if_holding(folder, ours)
    for path in confined.extra_read_only:
        _refuse_unless_whole(path)
        _refuse_if_holding(path, ours)
    outside = (*confined.writable, *confined.extra_read_only)
    for path in outside:
        if any(_real(path).is_relative_to(folder) for folder in ours):
            raise SandboxRefused(f"{path} is not given to commands, for it is nanobot's own")
    _refuse_overlaps(confined)


def _refuse_unless_below(path: str) -> None:
    names = path.rstrip("/").split("/")
    if not all(names) or any(name in {".", ".."} or "\0" in name for name in names):
        raise SandboxRefused(f"{path!r} is not a path below the workspace")


def _refuse_unless_whole(path: Path) -> None:
    if not path.is_absolute() or ".." in path.parts or "\0" in str(path):
        raise SandboxRefused(f"{path} is not a full path")


def _refuse_unless_folder(folder: Path) -> None:
    _refuse_unless_whole(folder)
    if not folder.is_dir():
        raise SandboxRefused(f"there is no folder {folder}")
    real = _real(folder)
    if real in _TOO_MUCH or any(real.is_relative_to(system) for system in _SYSTEMS):
        raise SandboxRefused(f"commands may not write in {folder}: the system lives there")


def _refuse_if_holding(path: Path, ours: Sequence[Path]) -> None:
    real = _real(path)
    if any(folder.is_relative_to(real) for folder in ours):
        raise SandboxRefused(f"{path} is not given to commands, for nanobot's own files are in it")


def _refuse_overlaps(confined: Confined) -> None:
    """What is mounted last would win, whatever was meant."""
    trees = [_real(folder) for folder in (confined.workspace, *confined.writable)]
    for index, tree in enumerate(trees):
        if any(tree.is_relative_to(other) for other in (*trees[:index], *trees[index + 1 :])):
            raise SandboxRefused(f"{tree} lies in another folder that can be written")
    for path in confined.extra_read_only:
        if any(_real(path).is_relative_to(tree) for tree in trees):
            raise SandboxRefused(f"{path} lies in a folder that can be written")


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
