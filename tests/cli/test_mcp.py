"""`nanobot mcp …` on a home without a gateway, with a real server."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.cli.support import MCP_PROGRAM, Nanobot, Terminal


@pytest.fixture
def little(home: Path, tmp_path: Path) -> Path:
    """Return the folder of the only configured server."""
    folder = tmp_path / "little"
    folder.mkdir()
    server = {
        "command": sys.executable, "args": ["-S", "-I", str(MCP_PROGRAM), str(folder)],
        "sandbox": False, "tools": ["echo", "picture"],
    }  # fmt: skip
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(json.dumps({"mcp": {"servers": {"little": server}}}))
    return folder


def test_a_server_is_looked_at_and_what_has_changed_is_accepted_once_it_was_shown(
    here: Nanobot, little: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nanobot(*words: str, answer: str = "") -> str:
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        return here("mcp", *words).stdout

    assert "not started yet" in nanobot("list")
    offered = "little offers 2 tools\n  little__echo\n  little__picture\n"
    shown = nanobot("check", "little", answer="n\n")
    assert "echo (new)\n  says it again\n" in shown
    assert shown.endswith("Accept these? [y/N] Nothing was changed.\n")
    assert json.loads(nanobot("check", "little", "--json"))["tools"] == []
    assert nanobot("check", "little", answer="y\n").endswith(offered)
    assert nanobot("check", "little") == offered
    assert nanobot("approve", "little") == "No tools are pending.\n"

    (little / "description").write_text("says it\u200b to the whole world")
    assert "+says it\\u200b to the whole world\n" in nanobot("check", "little", answer="n\n")
    assert "new or changed tools that you have not accepted yet: echo" in nanobot("list")
    shown = nanobot("approve", "little", answer="n\n")
    assert "-says it again\n" in shown
    assert "+says it\\u200b to the whole world\n" in shown
    assert shown.endswith("Accept these? [y/N] Nothing was changed.\n")
    assert nanobot("approve", "little", answer="y\n").endswith(offered)
    assert json.loads(nanobot("list", "--json"))["servers"][0]["waiting"] == []


def test_a_new_server_is_accepted_by_the_one_command_that_the_notice_names(
    here: Nanobot, little: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    done = here("mcp", "approve", "little").stdout
    assert "picture (new)" in done
    assert done.endswith("little offers 2 tools\n  little__echo\n  little__picture\n")


def test_nothing_is_accepted_unseen_where_nobody_can_be_asked(
    here: Nanobot, little: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    done = here("mcp", "approve", "little")
    assert (done.returncode, "--yes" in done.stderr) == (2, True)


def test_a_name_that_is_none_is_said_with_those_there_are(here: Nanobot, little: Path) -> None:
    done = here("mcp", "check", "litle")
    assert (done.returncode, "config.yaml has: little" in done.stderr) == (1, True)


def test_why_a_server_does_not_start_is_said_once(here: Nanobot, home: Path, little: Path) -> None:
    server = {"command": sys.executable, "args": ["-c", "raise SystemExit('out of order')"]}
    servers = {"little": server | {"sandbox": False}}
    (home / "config.yaml").write_text(json.dumps({"mcp": {"servers": servers}}))
    done = here("mcp", "check", "little")
    assert done.returncode == 1
    assert "WARNING the MCP server" not in done.stderr
    assert done.stderr.count("out of order") == 1
