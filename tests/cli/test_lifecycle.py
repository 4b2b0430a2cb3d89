"""`nanobot update` with a real clone, and `nanobot uninstall`: what is shown, asked and done."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nanobot.cli.command import Options
from nanobot.cli.update import Installation, bring_up_to_date, find_installation
from nanobot.errors import NanobotError
from nanobot.gateway.lock import home_lock
from tests.cli.support import Nanobot, Terminal

MAKEFILE = (
    ".venv/.installed:\n\t@mkdir -p .venv && cp version .venv/.installed\n"
    ".PHONY: .venv/.installed\n"
)


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    command = ["git", *identity, "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, version: str) -> None:
    (folder / "version").write_text(version)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", f"version {version}")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone that is one change behind its origin."""
    origin, made = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    git(origin, "init", "-q", "-b", "main")
    (origin / "Makefile").write_text(MAKEFILE)
    commit(origin, "1")
    subprocess.run(["git", "clone", "-q", str(origin), str(made)], check=True)
    commit(origin, "2")
    return made


@pytest.fixture
def options(home: Path) -> Options:
    return Options(home=home, check=False, no_backup=False, yes=True, json=False)


def test_a_clone_is_moved_forward_and_installed(
    clone: Path, options: Options, capfd: pytest.CaptureFixture[str]
) -> None:
    assert bring_up_to_date(options, Installation("clone", clone)) == 0
    assert (clone / ".venv" / ".installed").read_text() == "2"
    said = capfd.readouterr().out
    assert f"$ git -C {clone} pull --ff-only" in said
    assert f"$ make -C {clone} .venv/.installed" in said


def test_nothing_happens_without_a_yes(
    clone: Path,
    options: Options,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options.yes = False
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert bring_up_to_date(options, Installation("clone", clone)) == 1
    said = capsys.readouterr().out
    assert "1 changes are new:\n  version 2\n" in said
    assert said.endswith("Do this? [y/N] Nothing was changed.\n")
    assert (clone / "version").read_text() == "1"


def test_check_says_what_is_new_and_changes_nothing(
    clone: Path, options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    options.check = options.json = True
    assert bring_up_to_date(options, Installation("clone", clone)) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["installed_as"], said["new"]) == ("clone", ["version 2"])
    assert said["steps"][0] == f"git -C {clone} pull --ff-only"
    assert (clone / "version").read_text() == "1"


def test_a_home_is_backed_up_first(
    clone: Path, options: Options, here: Nanobot, capsys: pytest.CaptureFixture[str]
) -> None:
    assert here("cron", "list").returncode == 0  # makes the home
    options.check = options.json = True
    bring_up_to_date(options, Installation("clone", clone))
    first = json.loads(capsys.readouterr().out)["steps"][0]
    assert first.endswith(f"-m nanobot --home {options.home} backup")
    options.no_backup = True
    bring_up_to_date(options, Installation("clone", clone))
    assert "backup" not in json.loads(capsys.readouterr().out)["steps"][0]


def test_a_clone_with_changes_of_ones_own_is_left_alone(clone: Path, options: Options) -> None:
    (clone / "version").write_text("mine")
    with pytest.raises(NanobotError, match="changes of your own"):
        bring_up_to_date(options, Installation("clone", clone))
    assert (clone / "version").read_text() == "mine"


def test_a_step_that_fails_ends_it_with_the_way_back(clone: Path, options: Options) -> None:
    before = git(clone, "rev-parse", "HEAD")
    (clone.parent / "origin" / "Makefile").write_text(".venv/.installed:\n\t@false\n")
    commit(clone.parent / "origin", "3")
    with pytest.raises(NanobotError, match="failed") as caught:
        bring_up_to_date(options, Installation("clone", clone))
    assert f"reset --hard {before[:12]}" in caught.value.hint


def test_how_it_was_installed_is_found_out(tmp_path: Path) -> None:
    def found(package: Path, prefix: Path, direct_url: str = "") -> Installation:
        return find_installation(package, prefix, direct_url, ())

    clone, venv = tmp_path / "clone", tmp_path / "venv"
    (clone / ".git").mkdir(parents=True)
    (clone / "pyproject.toml").touch()
    run = found(clone / "nanobot", clone / ".venv")
    assert run == Installation("clone", clone, editable=True)
    own = found(clone / "nanobot", venv)
    assert own == Installation("pip", clone, editable=True)
    assert own.steps()[1][-2:] == ("--editable", f"{clone}[standard]")
    site = venv / "lib" / "nanobot"
    assert found(site, venv) == Installation("pip")
    from_clone = json.dumps({"url": f"file://{clone}", "dir_info": {}})
    assert found(site, venv, from_clone) == Installation("pip", clone)
    from_git = json.dumps({"url": "https://e.example/n", "vcs_info": {"vcs": "git"}})
    pip = found(site, venv, from_git)
    assert pip.steps()[0][-2:] == ("--upgrade", "nanobot[standard] @ git+https://e.example/n")
    (venv / "pipx_metadata.json").parent.mkdir(parents=True, exist_ok=True)
    (venv / "pipx_metadata.json").touch()
    assert found(site, venv).steps() == (("pipx", "upgrade", "nanobot"),)
    image = find_installation(site, venv, "", (str(tmp_path),))
    assert (image.kind, image.steps()) == ("image", ())


def test_in_a_container_it_says_what_to_do_outside(
    options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bring_up_to_date(options, Installation("image")) == 0
    assert "docker build -t nanobot ." in capsys.readouterr().out


@pytest.fixture
def no_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.mark.usefixtures("no_services")
def test_uninstall_says_what_stays(here: Nanobot, home: Path) -> None:
    here("cron", "list")
    (home / "backups").mkdir()
    (home / "backups" / "nanobot-1.tar.gz").touch()
    done = here("uninstall", "--yes")
    assert done.returncode == 0
    assert f"No service runs {home}." in done.stdout
    assert "nanobot uninstall --purge" in done.stdout
    assert f"1 backup in {home / 'backups'}" in done.stdout
    assert home.is_dir()


@pytest.mark.usefixtures("no_services")
def test_purge_removes_the_home_once_its_name_was_typed(
    here: Nanobot, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here("cron", "list")
    monkeypatch.setattr(sys, "stdin", Terminal("y\nnanobot\n"))
    wrong = here("uninstall", "--purge")
    assert (wrong.returncode, wrong.stderr) == (1, "")
    assert "That is not its name" in wrong.stdout
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert here("uninstall", "--purge").returncode == 1
    assert home.is_dir()
    monkeypatch.setattr(sys, "stdin", Terminal(f"y\n{home.name}\n"))
    done = here("uninstall", "--purge")
    assert done.stdout.endswith(f"{home} is removed.\n")
    assert not home.exists()


@pytest.mark.usefixtures("no_services")
def test_purge_takes_no_folder_that_is_not_a_home_and_none_that_is_in_use(
    here: Nanobot, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / "letters").touch()
    refused = here("uninstall", "--purge", "--yes", stdin=f"{home.name}\n")
    assert (refused.returncode, "does not look like" in refused.stderr) == (1, True)
    monkeypatch.setenv("HOME", str(home))
    (home / "state").mkdir()
    (home / "config.yaml").touch()
    own = here("uninstall", "--purge", "--yes", stdin=f"{home.name}\n")
    assert (own.returncode, "more than nanobot's" in own.stderr) == (1, True)
    monkeypatch.setenv("HOME", str(home.parent / "other"))
    with home_lock(home / "state"):
        assert here("uninstall", "--purge", "--yes", stdin=f"{home.name}\n").returncode == 75
    assert (home / "letters").exists()
