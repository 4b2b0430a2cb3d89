"""What is installed: whether the packages are those that this nanobot was made for."""

from __future__ import annotations

import platform
import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version

from nanobot import __version__
from nanobot.cli.doctor.finding import Finding

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*\(?(?P<bounds>[^;()]*)\)?\s*(?:;\s*(?P<when>.*))?"
)
_BOUND = re.compile(r"(>=|<=|==|<|>|!=|~=)\s*([0-9]+(?:\.[0-9]+)*)")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


def check_packages() -> Iterator[Finding]:
    """The installed packages against nanobot's own requirements, and what SQLite can do."""
    ours = f"nanobot {__version__}, Python {platform.python_version()}, "
    ours += f"SQLite {sqlite3.sqlite_version}"
    try:
        wrong = [text for line in requires("nanobot") or () if (text := _trouble(line))]
    except PackageNotFoundError:
        yield Finding("packages", "ok", f"{ours}; run without being installed")
        return
    if wrong:
        hint = f"`{sys.executable} -m pip install --upgrade nanobot` in the environment of nanobot"
        yield Finding(
            "packages", "warn", "\n".join([f"{ours}; not as it should be:", *wrong]), hint
        )
    else:
        yield Finding("packages", "ok", ours)
    if not _has_full_text():
        hint = "Use a Python whose SQLite has FTS5; that of every distribution does."
        yield Finding("packages", "fail", "this SQLite has no full-text search", hint)


def _trouble(line: str) -> str:
    """What is wrong with one requirement such as `idna<4,>=3.10`; empty for nothing.

    Those of an extra count as far as they are installed, those of development not at all.
    """
    parts = _REQUIREMENT.fullmatch(line.strip())
    if parts is None:
        return ""
    name, when = parts["name"], parts["when"] or ""
    extra = _EXTRA.search(when)
    if (extra and extra[1] == "dev") or (when and not extra):
        return ""
    try:
        installed = version(name)
    except PackageNotFoundError:
        return "" if extra else f"{name} is missing"
    bounds = _BOUND.findall(parts["bounds"])
    if all(_holds(_release(installed), operator, _release(bound)) for operator, bound in bounds):
        return ""
    return f"{name} {installed} is installed, and {parts['bounds'].strip()} is wanted"


def _release(text: str) -> Sequence[int]:
    """The numbers that a version begins with, without zeros at the end."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


def _holds(installed: Sequence[int], operator: str, bound: Sequence[int]) -> bool:
    """Whether a release is within one bound; operators that we do not use hold."""
    match operator:
        case ">=":
            return list(installed) >= list(bound)
        case "<":
            return list(installed) < list(bound)
        case "==":
            return list(installed) == list(bound)
        case _:
            return True


def _has_full_text() -> bool:
    db = sqlite3.connect(":memory:")
    try:
        db.execute("CREATE VIRTUAL TABLE words USING fts5 (text)")
    except sqlite3.OperationalError:
        return False
    finally:
        db.close()
    return True
