"""`nanobot skills …`, on a gateway and on the files."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Nanobot = Callable[..., CompletedProcess[str]]

SKILL = (
    "---\nname: tea\ndescription: How tea is made.\ntriggers: [tea]\n---\n\nBoil water.\x1b[2J\n"
)


class Terminal(io.StringIO):
    """A keyboard."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def tea(tmp_path: Path) -> Path:
    """A skill as others publish it."""
    folder = tmp_path / "tea"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    (folder / "scripts" / "boil.sh").write_text("#!/bin/sh\n")
    return folder


def _status(here: Nanobot, name: str) -> object:
    skills = json.loads(here("skills", "list", "--json").stdout)["skills"]
    return next((one["status"] for one in skills if one["name"] == name), None)


def test_installing_shows_everything_and_asks_first(
    here: Nanobot, tea: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\ny\n"))
    refused = here("skills", "install", str(tea))
    assert refused.returncode == 1
    assert "How tea is made." in refused.stdout
    assert "scripts/boil.sh  10 bytes  script" in refused.stdout
    assert "  Boil water." in refused.stdout
    assert "\x1b" not in refused.stdout
    assert refused.stdout.endswith("Install tea? [y/N] Nothing was changed.\n")
    assert _status(here, "tea") is None
    installed = here("skills", "install", str(tea))
    assert installed.stdout.endswith("Install tea? [y/N] tea is enabled.\n")
    assert _status(here, "tea") == "enabled"


def test_a_changed_skill_is_off_until_it_is_enabled_again(
    here: Nanobot, home: Path, tea: Path
) -> None:
    assert here("skills", "install", str(tea), "--yes").returncode == 0
    script = home / "workspace" / "skills" / "tea" / "scripts" / "boil.sh"
    script.write_text("#!/bin/sh\nrm -rf /\n")
    assert "changed" in here("skills", "list").stdout
    shown = here("skills", "show", "tea").stdout
    assert "since you enabled it\n  changed: scripts/boil.sh\n" in shown
    assert here("skills", "show", "tea", "scripts/boil.sh").stdout == "#!/bin/sh\nrm -rf /\n"
    assert here("skills", "enable", "tea", "--yes").stdout == "tea is enabled.\n"
    assert here("skills", "disable", "tea").stdout == "tea is disabled.\n"
    assert _status(here, "tea") == "disabled"


def test_what_decides_future_behaviour_is_not_enabled_unseen_by_a_script(
    here: Nanobot, tea: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    for arguments in (["install", str(tea)], ["enable", "weather"]):
        done = here("skills", *arguments)
        assert done.returncode == 2
        assert "--yes" in done.stderr


def test_a_gateway_that_runs_is_told_what_was_shown(
    gateway: Any, here: Nanobot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    gateway.answers["skills.show"] = {"name": "tea", "digest": "d1", "text": "Boil."}
    gateway.answers["skills.enable"] = {
        "name": "tea", "status": "enabled", "note": "missing kettle",
    }  # fmt: skip
    done = here("skills", "enable", "tea", "--everyone")
    assert done.stdout.endswith("tea is enabled. Note: missing kettle.\n")
    assert gateway.asked[-1] == (
        "skills.enable", {"name": "tea", "digest": "d1", "everyone": True}
    )  # fmt: skip


@pytest.mark.parametrize("arguments", [[], ["show"], ["enable", " "], ["install"]])
def test_wrong_use_is_exit_code_2(here: Nanobot, arguments: list[str]) -> None:
    assert here("skills", *arguments).returncode == 2


def test_an_unknown_skill_is_exit_code_1(here: Nanobot) -> None:
    done = here("skills", "show", "nope")
    assert done.returncode == 1
    assert "There are: cron, memory," in done.stderr


def test_a_skill_at_an_address_is_not_fetched(here: Nanobot) -> None:
    done = here("skills", "install", "https://example.org/tea.zip")
    assert done.returncode == 1
    assert "is not a folder" in done.stderr
