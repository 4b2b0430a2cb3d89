"""Linking an account, as a person at the terminal sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nanobot.channel import LoginRequest
from nanobot.errors import NanobotError
from nanobot.testing.clock import FakeClock
from nanobot_whatsapp.linked.install import install
from nanobot_whatsapp.linked.link import PING_SECONDS, HelperFailed
from nanobot_whatsapp.linked.login import LOGIN_SECONDS, SETTLING_SECONDS, login
from nanobot_whatsapp.people import phone_digits
from nanobot_whatsapp.settings import WhatsAppSettings
from tests.channels.whatsapp.linked.programs import BUILDS, NEW_ENOUGH, program

ME = {"number": "15550001111@s.whatsapp.net", "lid": "999@lid", "name": "Sam"}
PATIENCE = 30.0

Line = dict[str, object]

QR: Line = {"type": "qr", "data": "2@abc,def,ghi"}


def state(name: str, **more: object) -> Line:
    return {"type": "state", "state": name, "detail": "", "retry_in": None, "me": None, **more}


@dataclass
class Terminal:
    """A person who waits for words, with the folder and clock of the sign-in."""

    folder: Path
    clock: FakeClock = field(default_factory=FakeClock)
    said: list[str] = field(default_factory=list)
    background: asyncio.Task[None] | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, text: str) -> None:
        self.said.append(text)
        self._news.set()

    async def wait_for_words(self, words: str) -> None:
        """Wait for words. Raise the error of the sign-in if it ends before."""
        async with asyncio.timeout(PATIENCE):
            while words not in "\n".join(self.said):
                if self.background is not None and self.background.done():
                    self.background.result()
                self._news.clear()
                await self._news.wait()

    def welcome(self) -> Line:
        """Return the last helper's welcome."""
        welcome: Line = json.loads((self.folder / "welcome").read_bytes())
        return welcome

    async def sign_in(self, *scripts: list[Line], number: str = "") -> None:
        """Sign in with helpers that send these lines, one helper after the other."""
        for turn, script in enumerate(scripts):
            lines = "".join(f"{json.dumps(line)}\n" for line in script)
            (self.folder / f"script-{turn}").write_text(lines)
        node = str(self.folder.parent / "bin" / "node")
        options = WhatsAppSettings(node=node)
        async with asyncio.timeout(PATIENCE):
            await login(LoginRequest(options, self.folder, self.say, self.clock, number))

    @contextlib.asynccontextmanager
    async def signing_in(
        self, *scripts: list[Line], number: str = ""
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Sign in in the background, and end it at the end of the block."""
        task = asyncio.create_task(self.sign_in(*scripts, number=number))
        self.background = task
        task.add_done_callback(lambda _: self._news.set())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def finish_link(self, task: asyncio.Task[None]) -> None:
        """Wait for the end of a sign-in that links an account."""
        await self.wait_for_words("Linked. Waiting for the phone")
        await self.clock.advance(SETTLING_SECONDS)
        await task


@pytest.fixture
async def terminal(tmp_path: Path) -> Terminal:
    """A terminal with an installed helper that follows a script."""
    script = Path(__file__).with_name("scripted_helper.py")
    node = program(
        tmp_path / "bin" / "node",
        f'[ "$1" = --version ] && {{ echo {NEW_ENOUGH}; exit; }}\n'
        f'exec {sys.executable} -I -S {script} "$@"',
    )
    program(tmp_path / "bin" / "npm", BUILDS)
    state_folder = tmp_path / "state"
    state_folder.mkdir(mode=0o700)
    await install(state_folder, node, lambda _: None)
    return Terminal(state_folder)


async def test_the_code_is_shown_and_the_end_says_what_to_configure(terminal: Terminal) -> None:
    script = [state("connecting"), QR, {**QR, "data": "2@second"}, state("open", me=ME)]
    async with terminal.signing_in(script) as task:
        await terminal.finish_link(task)
    text = "\n".join(terminal.said)
    assert text.index("Linked devices > Link a device") < text.index("█")
    assert "Linked: +15550001111 (Sam)" in terminal.said[-1]
    assert 'whatsapp: ["15550001111"]' in terminal.said[-1]
    assert terminal.welcome() | {"pair": "qr", "number": ""} == terminal.welcome()


async def test_a_code_to_type_in_is_shown_for_a_number(terminal: Terminal) -> None:
    script: list[Line] = [{"type": "pair_code", "code": "ABCD-EFGH"}, state("open", me=ME)]
    async with terminal.signing_in(script, number="+1 (555) 000-1111") as task:
        await terminal.finish_link(task)
    assert "ABCD-EFGH" in "\n".join(terminal.said)
    assert terminal.welcome() | {"pair": "code", "number": "15550001111"} == terminal.welcome()


async def test_an_account_that_is_linked_already_is_said_at_once(terminal: Terminal) -> None:
    await terminal.sign_in([state("connecting", me=ME), state("open", me=ME)])
    assert "Already linked: +15550001111 (Sam)" in terminal.said[-1]


async def test_one_that_was_unlinked_on_the_phone_is_linked_anew(terminal: Terminal) -> None:
    async with terminal.signing_in([state("logged_out")], [QR, state("open", me=ME)]) as task:
        await terminal.finish_link(task)
    assert "no longer linked" in "\n".join(terminal.said)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (state("banned", detail="403"), "rejects this account"),
        (state("replaced"), "another program"),
        (state("logged_out"), "rejected the new device"),
    ],
)
async def test_what_waiting_does_not_mend_ends_it(
    last: Line, words: str, terminal: Terminal
) -> None:
    with pytest.raises(NanobotError, match=words):
        await terminal.sign_in([QR, last])


async def test_a_network_that_is_down_is_said_once_and_waited_for(terminal: Terminal) -> None:
    down = state("backoff", detail="no route", retry_in=2.0)
    await terminal.sign_in([down, state("connecting"), down, state("open", me=ME)])
    assert sum("can't be reached (no route)" in text for text in terminal.said) == 1


async def test_a_person_who_does_not_come_is_not_waited_for_for_ever(terminal: Terminal) -> None:
    async with terminal.signing_in([QR, state("backoff", detail="ping PING")]) as task:
        for ping in range(1, int(LOGIN_SECONDS / PING_SECONDS) + 1):
            await terminal.wait_for_words(f"(ping {ping})")
            await terminal.clock.advance(PING_SECONDS)
        with pytest.raises(NanobotError, match="within 10 minutes"):
            await task


async def test_broken_off_it_leaves_no_helper(terminal: Terminal) -> None:
    async with terminal.signing_in([QR]):
        await terminal.wait_for_words("█")
    await terminal.sign_in([state("open", me=ME)])
    assert "Already linked" in terminal.said[-1]


async def test_a_helper_that_breaks_is_said(terminal: Terminal) -> None:
    with pytest.raises(HelperFailed):
        await terminal.sign_in([{**QR, "data": "x" * 5000}])


@pytest.mark.parametrize("number", ["0155500011", "12345", "1555000111a", "+", "1555٠٠٠1111"])
async def test_a_number_that_is_none_is_refused_before_anything_starts(
    number: str, tmp_path: Path
) -> None:
    terminal = Terminal(tmp_path)
    with pytest.raises(NanobotError, match="country code"):
        await terminal.sign_in(number=number)
    assert terminal.said == []


def test_a_number_may_be_written_as_people_do() -> None:
    assert phone_digits("+49 (1555) 000-111") == phone_digits("00491555000111") == "491555000111"
