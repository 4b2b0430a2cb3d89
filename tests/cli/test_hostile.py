"""No command prints stored text uncleaned: a home is filled with hostile text through every entry,
and every read-only command of the grammar runs on it."""

from __future__ import annotations

import argparse
import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nanobot.bus.events import OutboundPart
from nanobot.cli.main import main
from nanobot.cli.parser import build_parser
from nanobot.errors import SendRefused
from nanobot.security.audit import AuditLog
from nanobot.security.redaction import Redactor
from nanobot.testing import FakeClock, ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from tests.hidden import find_hidden
from tests.support import running

WORD = "tangerine"
HOSTILE = (
    f"{WORD} \x1b[2J\x1b]0;t\x07\x08\x07\u202egpj.exe\u2066 z\u200bw\u00ads\ufeff "
    f"s\u0336t\u0338 e{chr(0x301) * 50} \U000e0041\U000e0042 a{chr(0xFE01) * 9} \u3164 \u2028x"
)

CHANGING = frozenset(
    """onboard; agent; web list; web revoke; gateway; team init; team leave; service install;
    service uninstall; service logs; channels login; pair approve; pair revoke; api keys add;
    api keys revoke; memory importance; memory restore; memory forget; memory accept; memory drop;
    memory rebuild; memory sync; dream; approvals revoke; cron add; cron remove; cron run;
    cron pause; cron resume; skills enable; skills disable; skills install; queue retry;
    queue drop; mcp add; mcp remove; mcp serve; mcp check; mcp approve; config set; config unset;
    backup; restore; import""".replace("\n", " ").split("; ")
)
"""Commands that change something, ask a person, or keep running."""
NAMES = {
    "memory search": [WORD],
    "memory why": [WORD],
    "memory log": [],
    "skills show": ["fruit"],
    "sessions show": ["fake:1"],
    "completion": ["bash"],
}


def leaves(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield every command of the grammar."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for group in groups:
        for name, inner in group.choices.items():
            yield from leaves(inner, (*path, name))
    if not groups:
        yield path


SHOWING = [
    command for command in leaves(build_parser()) if " ".join(command).strip() not in CHANGING
]


class Refusing(FakeChannel):
    """Fails to deliver to the chat `dead`, with an untrusted reason."""

    async def send(self, part: OutboundPart) -> Any:
        if part.chat_id == "dead":
            raise SendRefused(HOSTILE)
        return await super().send(part)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with hostile text from every entry."""
    home = tmp_path_factory.mktemp("home")
    asyncio.run(_fill_home(home))
    skill = home / "workspace" / "skills" / "fruit"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(f"---\nname: fruit\ndescription: {WORD}\n---\n{HOSTILE}\n")
    memory = home / "workspace" / "memory" / "MEMORY.md"
    memory.write_text(f"# Long-term memory\n\n- {HOSTILE.splitlines()[0]}\n")
    log = AuditLog(home / "logs" / "audit.jsonl", Redactor(), FakeClock())
    log.write({"event": "decided", "outcome": "asked", "tool": HOSTILE, "because": HOSTILE})
    return home


async def _fill_home(home: Path) -> None:
    model = ScriptedModel(
        calls("cron", action="add", message=HOSTILE, schedule="every day at 8"),
        calls("read_file", path=HOSTILE),
        says(HOSTILE),
        says(HOSTILE),
    )
    channel = Refusing()
    async with running(home, model, channel, chores=False):
        await channel.answer_to(await channel.say(HOSTILE, sender_name=HOSTILE))
        await channel.say(HOSTILE, "dead")
        await channel.ask("/help")


def run(capsys: pytest.CaptureFixture[str], home: Path, *command: str) -> str:
    main(["--home", str(home), *command])
    printed = capsys.readouterr()
    return printed.out + printed.err


@pytest.mark.parametrize("command", SHOWING, ids=" ".join)
def test_no_command_shows_what_a_person_would_not_see(
    command: tuple[str, ...], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = NAMES.get(" ".join(command), [])
    if command == ("turn", "show"):
        session = run(capsys, home, "sessions", "show", "fake:1")
        arguments = [session.split("(turn ")[1].split(")")[0]]
    if command == ("state", "show"):
        arguments = ["jobs"]
    printed = run(capsys, home, *command, *arguments)
    assert find_hidden(printed) == ""
    if command in EXPECTED:
        assert WORD in printed


EXPECTED = frozenset(
    {
        ("sessions", "list"),
        ("sessions", "show"),
        ("turn", "show"),
        ("cron", "list"),
        ("state", "show"),
        ("memory", "show"),
        ("memory", "search"),
        ("skills", "show"),
        ("audit",),
        ("queue", "list"),
    }
)
"""Commands that must show it."""


@pytest.mark.parametrize("in_terminal", [True, False])
def test_a_reply_on_the_command_line_is_as_clean_as_in_the_chat(
    gateway: Any, environment: dict[str, str], in_terminal: bool
) -> None:
    gateway.texts["hi"] = HOSTILE
    command = [sys.executable, "-m", "nanobot", "agent", "-m", "hi"]
    if not in_terminal:
        printed = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    else:
        ours, theirs = pty.openpty()
        with subprocess.Popen(command, env=environment, stdout=theirs, stdin=theirs):
            os.close(theirs)
            printed = b"".join(_until_closed(ours)).replace(b"\r\n", b"\n")
    text = printed.decode()
    assert WORD in text
    assert find_hidden(text) == ""


def _until_closed(terminal: int) -> Iterator[bytes]:
    try:
        while piece := os.read(terminal, 65_536):
            yield piece
    except OSError:  # on Linux after the other end is closed
        return
    finally:
        os.close(terminal)
