"""Homes of HKUDS/nanobot, written by its own versions 0.1.4.post6 and 0.3.5 (and shortened)."""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nanobot.importing.files import ImportReport
from nanobot.importing.importer import carry_out, prepare
from nanobot.testing import FakeClock

HOMES = Path(__file__).with_name("homes")
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
NOW = datetime(2026, 11, 22, 13, 0, tzinfo=UTC)

Contents = Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class ImportResult:
    """A finished import: the other home `before`, the `new` home, and the report."""

    version: str
    source: Path
    before: Contents
    new: Path
    report: ImportReport


@pytest.fixture(scope="session", params=["014", "035"])
def imported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ImportResult:
    """The import of each version's home. Tests only read it."""
    folder = tmp_path_factory.mktemp("import")
    source = copy_home(request.param, folder / "old")
    before = contents(source)
    report = do(source, folder / "new")
    return ImportResult(request.param, source, before, folder / "new", report)


def copy_home(version: str, target: Path, *, config: bool = True) -> Path:
    """Copy the home of a version, with a picture in it. Without its configuration it takes half the
    time."""
    shutil.copytree(HOMES / version, target)
    if not config:
        (target / "config.json").unlink()
    picture = target / "media" / "telegram" / "photo1.png"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(PICTURE)
    return target


def do(source: Path, target: Path, *owners: str) -> ImportReport:
    """Import `source` into `target`."""
    clock = FakeClock(NOW)
    return carry_out(prepare(source, target, None, owners, clock), clock)


def contents(folder: Path) -> Contents:
    """Return the digest and the mode of each file in a folder."""
    return {
        path.relative_to(folder).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mode,
        )
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
