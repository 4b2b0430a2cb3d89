"""`nanobot sessions`: rename, pin, archive, search and delete, without a gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot.cli.main import main
from nanobot.testing import ScriptedModel, says
from nanobot.testing.channel import FakeChannel
from tests.support import running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    async def talk() -> None:
        model, channel = ScriptedModel(author=lambda _: says("ok")), FakeChannel()
        async with running(tmp_path, model, channel):
            await channel.ask("# The *red* boat", "1")
            await channel.ask("a blue bicycle", "2")

    asyncio.run(talk())
    return tmp_path


def run(home: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["--home", str(home), "sessions", *words]) == 0
    return capsys.readouterr().out


def test_a_conversation_is_changed_found_and_deleted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def titles(*words: str) -> list[str]:
        lines = run(home, capsys, "list", *words).splitlines()[1:]
        return [line.split("  ")[-1] for line in lines]

    assert titles() == ["a blue bicycle", "The red boat"]
    run(home, capsys, "pin", "fake:1")
    assert titles() == ["* The red boat", "a blue bicycle"]
    run(home, capsys, "rename", "fake:2", "Wheels")
    run(home, capsys, "archive", "fake:2")
    assert titles() == ["* The red boat"]
    assert titles("--archived") == ["Wheels"]
    run(home, capsys, "archive", "fake:2", "--off")
    run(home, capsys, "rename", "fake:2", "")
    run(home, capsys, "pin", "fake:1", "--off")
    assert titles() == ["a blue bicycle", "The red boat"]
    found = run(home, capsys, "search", "bicyc").splitlines()
    assert (found[0].split("  ")[0], found[1]) == ("fake:2 #1", "  a blue bicycle")
    assert "No message has all of these words" in run(home, capsys, "search", "red bicycle")
    assert "Deleted 2 messages." in run(home, capsys, "delete", "fake:2", "--yes")
    assert titles() == ["The red boat"]
    assert "No message has" in run(home, capsys, "search", "bicycle")
    for key in ("fake:2", "fake:9"):
        assert main(["--home", str(home), "sessions", "pin", key]) == 1
        assert "no session" in capsys.readouterr().err
