"""A power loss: the model of the disk, and the short version of the campaign."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest

from bench.injection import build_injector
from bench.powerloss import Disk, Loss
from nanobot.memory.git import Repository
from tests.bench.campaigns import ROOT, needs_a_compiler, short

pytestmark = pytest.mark.campaign

_PROGRAM = """
import os, shutil, sys
from pathlib import Path
from bench.injection import log_writes

home = Path(sys.argv[1])
log_writes(home.parent / "log", home)

def sync(name):
    descriptor = os.open(home / name, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)

"""
_ATOMIC = """
(home / "new").write_text("new")
sync("new")
(home / "new").replace(home / "old")
"""
_CASES = {
    "not synced": ("(home / 'a').write_text('a')", {"old": "old"}, {"old": "old", "a": ""}),
    "content": (
        "(home / 'a').write_text('a'); sync('a')",
        {"old": "old"},
        {"old": "old", "a": "a"},
    ),
    "name": (
        "(home / 'a').write_text('a'); sync('.')",
        {"old": "old", "a": ""},
        {"old": "old", "a": ""},
    ),
    "appended": (
        "file = (home / 'old').open('a'); file.write('!'); file.flush(); sync('old');"
        "file.write('?'); file.flush()",
        {"old": "old!"},
        {"old": "old!"},
    ),
    "truncated": ("(home / 'old').write_text('')", {"old": "old"}, {"old": "old"}),
    "replaced": (_ATOMIC, {"old": "old"}, {"old": "new"}),
    "replaced and synced": (f"{_ATOMIC}sync('.')", {"old": "new"}, {"old": "new"}),
    "renamed without content": (
        "(home / 'new').write_text('new'); (home / 'new').replace(home / 'old'); sync('.')",
        {"old": ""},
        {"old": ""},
    ),
    "removed": ("(home / 'old').unlink()", {"old": "old"}, {}),
    "removed and synced": ("(home / 'old').unlink(); sync('.')", {}, {}),
    "a new folder": (
        "(home / 'f').mkdir(); (home / 'f/a').write_text('a'); sync('f/a'); sync('f')",
        {"old": "old"},
        {"old": "old", "f/a": "a"},
    ),
    "moved to a synced folder": (
        "(home / 'f').mkdir(); sync('.'); (home / 'old').rename(home / 'f/old'); sync('f')",
        {"f/old": "old"},
        {"f/old": "old"},
    ),
    "copied": ("shutil.copyfile(home / 'old', home / 'b'); sync('b'); sync('.')",) + (
        {"old": "old", "b": "old"},
    ) * 2,
}  # fmt: skip
"""The calls, and the files after a loss of all that was not synced, and of all but the names."""


@pytest.fixture(scope="module")
def injector(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the libraries once."""
    return build_injector(tmp_path_factory.mktemp("injector"))


def _run(home: Path, injector: str, program: str) -> Disk:
    """Run a program on a home with one file, and return the disk."""
    home.mkdir()
    (home / "old").write_text("old")
    disk = Disk(home)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "LD_PRELOAD": injector}
    subprocess.run([sys.executable, "-c", _PROGRAM + program, home], env=environ, check=True)
    disk.replay(home.parent / "log")
    assert disk.differences() == []
    return disk


def _files(home: Path) -> dict[str, str]:
    found = (path for path in home.rglob("*") if path.is_file())
    return {str(path.relative_to(home)): path.read_text() for path in found}


@needs_a_compiler
@pytest.mark.parametrize("case", _CASES)
def test_only_synced_content_and_names_are_certain_to_survive(
    tmp_path: Path, injector: str, case: str
) -> None:
    program, synced, names = _CASES[case]
    home = tmp_path / "home"
    disk = _run(home, injector, program)
    for loss, files in ((Loss.NAMES, names), (Loss.SYNCED, synced)):
        deepcopy(disk).lose(loss, random.Random(1))
        assert _files(home) == files
        assert Disk(home).differences() == []


@needs_a_compiler
def test_an_unsynced_end_is_torn_and_synced_bytes_are_kept(tmp_path: Path, injector: str) -> None:
    program = "file = (home / 'old').open('a'); file.write('x' * 9000); file.flush()"
    home, found = tmp_path / "home", set[str]()
    disk = _run(home, injector, program)
    for seed in range(40):
        deepcopy(disk).lose(Loss.TORN, random.Random(seed))
        found.add(_files(home)["old"])
    assert all(text.startswith("old") for text in found)
    assert {"old", "old" + "x" * 9000} < found
    assert any("\0" in text for text in found)


_VERSION = """
from datetime import UTC, datetime
from nanobot.memory.git import Repository

repository = Repository(home / "versions" / "memory.git")
repository.create()
repository.set_tip(repository.store("", {"folder/file": b"text"}, "a version", datetime.now(UTC)))
"""


@needs_a_compiler
@pytest.mark.parametrize(
    "packing", ["", "repository.pack(); repository.close()"], ids=["loose", "packed"]
)
@pytest.mark.parametrize("loss", Loss)
def test_a_version_of_memory_survives(
    tmp_path: Path, injector: str, packing: str, loss: Loss
) -> None:
    home = tmp_path / "home"
    _run(home, injector, _VERSION + packing).lose(loss, random.Random(1))
    repository = Repository(home / "versions" / "memory.git")
    files = repository.files(repository.commit(repository.tip()))
    assert repository.content(files["folder/file"]) == b"text"
    repository.close()


@needs_a_compiler
def test_after_a_power_loss_at_any_step_no_message_is_lost_and_no_answer_differs(
    tmp_path: Path,
) -> None:
    figures = short("bench.crash_power", tmp_path)
    assert figures["failures"] == []
    assert figures["kills at a handful of calls"] >= 5
