"""`nanobot import` shows its plan, asks, and executes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nanobot.cli.main import main
from tests.cli.support import Nanobot
from tests.importing.conftest import contents, copy_home


def test_a_dry_run_shows_everything_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = copy_home("014", tmp_path / "old")
    before = contents(tmp_path)
    new = str(tmp_path / "new")
    assert main(["import", str(source), "--to", new, "--dry-run", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["done"] is False
    assert {item["source"] for item in data["items"]} == set(contents(source))
    assert contents(tmp_path) == before
    assert main(["import", str(source), "--to", new, "--yes", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["items"] == data["items"]  # the names of files in media/ too


def test_without_a_person_it_has_to_be_confirmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = copy_home("035", tmp_path / "old")
    new = tmp_path / "new"
    assert main(["import", str(source), "--to", str(new)]) == 2
    assert "--yes" in capsys.readouterr().err
    assert not new.exists()
    assert main(["import", str(source), "--to", str(new), "--yes"]) == 0
    shown = capsys.readouterr().out
    assert "conversations    3 files, 21 messages" in shown
    assert f"`nanobot --home {new} skills list`" in shown
    assert shown.endswith(f"or open a chat with `nanobot --home {new} agent`.\n")
    assert (new / "config.yaml").is_file()


def test_what_is_erased_is_gone_from_an_imported_home(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NANOBOT_HOME", str(tmp_path / "new"))
    assert main(["import", str(copy_home("014", tmp_path / "old")), "--yes"]) == 0
    assert "BLUEBIRD" in _everything(tmp_path / "new")
    assert main(["memory", "forget", "BLUEBIRD", "--erase", "--yes"]) == 0, capsys.readouterr().err
    assert "BLUEBIRD" not in _everything(tmp_path / "new")


def _everything(folder: Path) -> str:
    files = (path for path in folder.rglob("*") if path.is_file())
    return "".join(path.read_text("utf-8", "replace") for path in files)


def test_a_home_that_was_not_imported_says_so_first(here: Nanobot, home: Path) -> None:
    (home / "workspace").mkdir(parents=True)
    (home / "config.json").write_text("{}")
    for command in (("agent", "-m", "hello"), ("status",)):
        assert "Run `nanobot import` first" in here(*command).stderr
    findings = json.loads(here("doctor", "--json").stdout)
    assert any("not been imported" in finding["text"] for finding in findings)
