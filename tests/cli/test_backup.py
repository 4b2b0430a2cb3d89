"""`nanobot backup` and `restore`: output for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nanobot.bus.journal_file import SCHEMA
from nanobot.cli.main import main
from nanobot.gateway.lock import home_lock
from nanobot.upkeep.backups import exclusive_backup
from tests.upkeep.homes import archive, build_home, head, tree


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return build_home(tmp_path / "home")


def run(home: Path, *arguments: object) -> int:
    return main(["--home", str(home), *map(str, arguments)])


def test_a_backup_goes_where_the_configuration_says_and_is_listed_there(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "backup", "list") == 0
    assert "no backups" in capsys.readouterr().out
    with (home / "config.yaml").open("a") as config:
        config.write("backup:\n  folder: ../kept\n  media: false\n")
    (home / "config.yaml").chmod(0o600)
    assert run(home, "backup", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert Path(made["file"]).parent.resolve() == home.parent / "kept"
    assert (made["live"], made["media"], made["encrypted"]) == (False, False, False)
    assert run(home, "backup", "list") == 0
    assert made["file"] in capsys.readouterr().out
    assert run(home, "backup", "verify", made["file"]) == 0
    assert "1 (1 messages)" in capsys.readouterr().out


def test_a_key_is_made_a_backup_encrypted_for_it_and_restored_with_it(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, file, new = tmp_path / "key", tmp_path / "one.age", tmp_path / "new"
    assert run(home, "backup", "keygen", key) == 0
    public = capsys.readouterr().out.splitlines()[0]
    assert "AGE-SECRET-KEY" in key.read_text()
    assert run(home, "backup", file, "--recipient", public) == 0
    assert "encrypted" in capsys.readouterr().out
    assert run(home, "restore", file, "--to", new) == 1
    assert "--identity FILE" in capsys.readouterr().err
    assert run(home, "restore", file, "--to", new, "--identity", key, "--json") == 0
    restored = json.loads(capsys.readouterr().out)
    assert (restored["home"], restored["messages"], restored["troubles"]) == (str(new), 1, [])
    assert run(home, "backup", "verify", file, "--identity", key) == 0
    assert capsys.readouterr().err == ""
    key.chmod(0o640)
    assert run(home, "backup", "verify", file, "--identity", key) == 0
    assert f"other users can read {key}. Run `chmod 600 {key}`." in capsys.readouterr().err


def test_a_home_in_use_is_not_replaced(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "one.tar.gz"
    assert run(home, "backup", file) == 0
    with home_lock(home / "state"):
        assert run(home, "restore", file, "--replace") == 75
    capsys.readouterr()
    assert run(home, "restore", file, "--replace") == 0
    assert "before-restore-" in capsys.readouterr().out


def test_a_home_of_which_a_backup_is_being_made_is_not_replaced(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "one.tar.gz"
    assert run(home, "backup", file) == 0
    before = tree(home)
    with exclusive_backup(home):
        assert run(home, "restore", file, "--replace") == 1
    assert "a backup of this home is already running" in capsys.readouterr().err
    assert tree(home) == before
    assert run(home, "restore", file, "--replace") == 0


def test_a_home_that_would_not_work_is_told_before_it_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "one.tar.gz"
    file.write_bytes(archive([head(journal=SCHEMA.version)]))
    assert run(tmp_path, "backup", "verify", file) == 1
    assert "problem: the journal cannot be used: it is missing" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["verify"], ["keygen"], ["list", "extra"], ["one", "two"], ["--recipient", "age1nonsense"]],
)
def test_what_makes_no_sense_is_said_and_makes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run(home, "backup", *arguments) in (1, 2)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert not (home / "backups").exists()


def test_a_backup_that_is_not_there_is_named_before_anything_is_said_of_the_home(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing.tar.gz"
    for command in (["restore"], ["backup", "verify"]):
        assert run(home, *command, missing) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"error: there is no file {missing}")
        assert "--replace" not in said


def test_a_file_that_is_no_backup_is_said_in_words(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, short = tmp_path / "other.tar.gz", tmp_path / "short.tar.gz"
    other.write_text("something else")
    assert run(home, "backup", short) == 0
    short.write_bytes(short.read_bytes()[:-20])
    assert run(home, "backup", "verify", other) == 1
    assert "it is not a nanobot backup, or it is damaged" in capsys.readouterr().err
    assert run(home, "backup", "verify", short) == 1
    assert "it is damaged (" in capsys.readouterr().err


def test_a_home_restored_elsewhere_is_named_in_what_to_type_next(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, new = tmp_path / "one.tar.gz", tmp_path / "new home"
    assert run(home, "backup", file) == 0
    assert run(home, "restore", file, "--to", new) == 0
    said = capsys.readouterr().out
    assert f"start this one with `nanobot --home '{new}' gateway`." in said
    assert f"`nanobot --home '{new}' doctor`" in said


def test_a_home_whose_restore_was_cut_short_is_made_whole_by_the_same_command(
    home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "one.tar.gz"
    assert run(home, "backup", file) == 0
    before = home / "before-restore-20260302T090000Z"
    before.mkdir()
    (home / "state").rename(before / "state")
    (home / ".restore-under-way.json").touch()
    assert run(home, "restore", file, "--replace") == 0
    assert (home / "state/journal.db").exists()
    assert (before / "state/journal.db").exists()
    assert not (home / ".restore-under-way.json").exists()
