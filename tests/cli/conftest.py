"""A gateway for clients: the real control server in a thread, with a scripted chat behind it."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from loguru import logger

from nanobot.channel import Operation
from nanobot.cli.main import main
from nanobot.errors import NanobotError
from nanobot.gateway.control import ControlConnection, ControlServer
from tests.cli.support import Nanobot

STATUS: Mapping[str, object] = {
    "running": True, "pid": 7, "version": "0.1.0", "home": "/h", "model": "tiny-1",
    "provider": "offline", "uptime_seconds": 3_725, "sessions": 2, "turns_running": 1,
    "queue": {"received": 1, "working": 0, "failed": 2, "outbox_pending": 0, "dead": 0},
    "channels": [{"name": "cli", "state": "running", "detail": ""}],
}  # fmt: skip


COMMANDS = [{"name": name, "summary": "…"} for name in ("help", "new", "stop", "status")]

CONVERSATION = {
    "offline": False, "model": "tiny-1", "context_percent": 31, "messages": 0, "last": "",
    "tokens_today": 12_400,
}  # fmt: skip

OPERATIONS = (
    "status", "status.conversation", "commands", "models", "turn.show",
    "queue.list", "queue.retry", "queue.drop",
    "memory.show", "memory.search", "memory.why", "memory.log", "memory.versions",
    "memory.restore", "memory.forget_plan", "memory.forget", "memory.pending", "memory.accept",
    "memory.drop", "memory.rebuild", "memory.sync", "memory.dream",
    "pair.list", "pair.approve", "pair.revoke", "approvals.list", "approvals.revoke",
    "cron.list", "cron.add", "cron.remove", "cron.run", "cron.pause", "cron.resume",
    "skills.show", "skills.enable",
    "conversations.list", "conversations.show", "conversations.search", "status.conversation",
    "channels.status", "channels.borrow", "channels.return", "dialects.replace",
)  # fmt: skip


PATIENCE = 60.0
"""Seconds until a test gives up. No test waits for time to pass."""


class FakeGateway:
    """Answers a message with `echo: <text>` unless it begins with a known word.

    `tool …` uses one, `send …` sends the rest with a file, `fail …` and `wait …` have these
    outcomes, `refuse …` is rejected, `say …` repeats the rest, `hang …` runs until `/stop`, `print
    …` shows tool output and hangs, `read …` reads a prompt until `/stop`, `ask …` asks a question
    for each of its words and reports the answers, `die …` ends the gateway when the message is
    accepted, `stream …` sends `streams[…]` and hangs if `texts[…]` is no reply. Watchers receive
    `announce`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.said: list[tuple[str, str]] = []
        self.asked: list[tuple[str, Mapping[str, object]]] = []
        self.answers: dict[str, object] = {
            "status": STATUS,
            "status.conversation": CONVERSATION,
            "commands": COMMANDS,
        }
        self.ids: list[str] = []
        self.attached: list[object] = []
        """The files of all messages."""
        self.earlier: list[object] = []
        """For each message, the messages before it in a temporary chat."""
        self.hangs_up = 0
        """The number of requests to hang up on before they are accepted."""
        self.deaf_to_stop = False
        self.texts: dict[str, str] = {}
        """Replies to messages with exactly this text, or to `stream …` with this rest."""
        self.streams: dict[str, Sequence[str]] = {}
        """Pieces of the incomplete replies to `stream …`."""
        self._held: dict[str, asyncio.Event] = {}
        self.arrived: queue.SimpleQueue[str] = queue.SimpleQueue()
        """Each text after it was handled, for tests to wait for."""
        self.unseen: list[tuple[str, str, tuple[tuple[str, str], ...]]] = []
        """Messages for the first watcher: time, text, choices."""
        self._loop = asyncio.new_event_loop()
        self._server = ControlServer(home / "state", self._operations(), self._chat)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._hanging: list[Callable[[], None]] = []
        self._questions = 0
        self._verdicts: list[str] = []
        self._turns = itertools.count(1)
        self._watchers: list[tuple[object, ControlConnection]] = []
        self._is_watched = threading.Event()

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(10)

    def stop(self) -> None:
        for operation in self._held:
            self.release(operation)
        asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def restart(self) -> None:
        """Hang up on everyone and listen again."""
        for step in (self._server.close, self._server.start):
            asyncio.run_coroutine_threadsafe(step(), self._loop).result(10)

    def hold(self, operation: str) -> None:
        """Delay the answer to an operation until `release`."""
        self._held[operation] = asyncio.Event()

    def release(self, operation: str) -> None:
        """Allow the answer."""
        self._loop.call_soon_threadsafe(self._held[operation].set)

    def announce(
        self, text: str, *choices: tuple[str, str], event_name: str = "message", chat: str = ""
    ) -> None:
        """Send an event that answers no request, when there is a watcher."""
        assert self._is_watched.wait(PATIENCE), "nobody watches"
        for watch_id, connection in self._watchers:
            event = {
                "event": event_name,
                "id": watch_id,
                "text": text,
                "choices": _buttons(choices),
                "chat": chat,
            }
            self._loop.call_soon_threadsafe(connection.send, event)

    def _operations(self) -> dict[str, Operation]:
        return {name: self._operation(name) for name in OPERATIONS}

    def _operation(self, name: str) -> Operation:
        async def operation(arguments: Mapping[str, object]) -> object:
            self.asked.append((name, arguments))
            if name in self._held:
                await self._held[name].wait()
            if name not in self.answers:
                raise NanobotError(f"nothing for {name}", hint="Look elsewhere.")
            return self.answers[name]

        return operation

    async def _chat(self, request: Mapping[str, object], connection: ControlConnection) -> None:
        if not request.get("watch"):
            self.ids.append(str(request["id"]))
        if self.hangs_up > 0:
            self.hangs_up -= 1
            await connection.close(0)
            return
        try:
            await self._answer(request, connection)
        finally:
            if not request.get("watch"):
                self.arrived.put(str(request["text"]))

    def _watch(self, watch_id: object, connection: ControlConnection) -> None:
        self._watchers.append((watch_id, connection))
        self._is_watched.set()
        for at, said, choices in self.unseen:
            event = {"event": "message", "id": watch_id, "text": said, "at": at}
            connection.send({**event, "choices": _buttons(choices)})
        self.unseen = []

    async def _answer(self, request: Mapping[str, object], connection: ControlConnection) -> None:
        session, text = str(request["session"]), str(request["text"])
        if request.get("watch"):
            self._watch(request["id"], connection)
            return
        self.said.append((session, text))
        self.earlier.append(request.get("earlier"))
        self.attached += cast("list[object]", request.get("attached") or [])
        word, _, rest = text.removeprefix("/run ").partition(" ")

        def tell(event: str, **fields: object) -> None:
            connection.send({"event": event, "id": request["id"], **fields})

        def reply(text: str, outcome: str = "done", **fields: object) -> None:
            tell("reply", text=text, turn=turn, outcome=outcome, **fields)

        turn = f"t-{next(self._turns)}"

        if word == "refuse":
            raise NanobotError("not today", hint="Try tomorrow.")
        tell("accepted")
        if word == "die":
            await connection.close(0)
        elif word in {"hang", "print", "read", "stream", "/stop"}:
            tell("taken", turn=turn)
            self._run(word, rest, tell, reply)
        elif word in {"ask", "/approve", "/deny"}:
            self._ask(word, rest.split(), tell, reply)
        elif word in {"tool", "send"}:
            {"tool": self._use, "send": self._send}[word](text, tell)
        elif word in {"fail", "wait"}:
            reply(f"{word}: sorry", {"fail": "failed", "wait": "waiting"}[word])
        else:
            reply(self.texts.get(text, rest if word == "say" else f"echo: {text}"))

    def _run(
        self, word: str, rest: str, tell: Callable[..., None], reply: Callable[..., None]
    ) -> None:
        """Run until it is stopped."""
        if word == "stream":
            for piece in self.streams[rest]:
                tell("delta", text=piece, restart=False)
            if rest in self.texts:
                reply(self.texts[rest])
            else:
                self._hanging.append(lambda: reply("", "stopped"))
        elif word == "hang":
            tell("delta", text="so far", restart=False)
            self._hanging.append(lambda: reply("", "stopped"))
        elif word == "print":
            tell("tool", hint="exec make")
            tell("output", text="".join(f"line {number}\n" for number in range(1, 10)))
            tell("output", text="10%\r20%\x1b[2J")
            self._hanging.append(lambda: reply("built"))
        elif word == "read":
            tell("reading", text="reading 1,900 of 2,750 tokens")
            self._hanging.append(lambda: reply("all read"))
        elif not self.deaf_to_stop:
            while self._hanging:
                self._hanging.pop()()
            reply("Stopped.")

    def _ask(
        self, word: str, codes: list[str], tell: Callable[..., None], reply: Callable[..., None]
    ) -> None:
        """Ask once for each code, all at the same time, or accept one answer."""
        if word != "ask":
            reply("")
            self._verdicts.append(word)
            if len(self._verdicts) == self._questions:
                self._hanging.pop()()
            return
        self._questions, self._verdicts = len(codes), []
        self._hanging.append(lambda: reply(" ".join(self._verdicts)))
        for code in codes:
            choices = [("Approve", f"/approve {code}"), ("Deny", f"/deny {code}")]
            tell("message", text=f"May I do {code}?", choices=_buttons(choices))

    def _use(self, _: str, tell: Callable[..., None]) -> None:
        """Use a tool."""
        tell("tool", hint="read_file a.txt")
        tell("done", hint="read_file a.txt", size=1_234)
        tell("notice", text="the disk is nearly full")
        usage: dict[str, Any] = {"prompt_tokens": 11, "completion_tokens": 22, "milliseconds": 33}
        tell("reply", text="used it", turn="t-1", outcome="done", tools=["read_file"], **usage)

    def _send(self, text: str, tell: Callable[..., None]) -> None:
        """Send the rest with a file. `it all` is not repeated in the reply."""
        rest = text.removeprefix("send ")
        said = "" if rest == "it all" else "that was it"
        file = {"name": "a\x1b[1m.txt", "path": "/h/media/ab.txt", "size": 1_234}
        tell("message", text=rest, files=[file])
        tell("delta", text=said or rest, restart=False)
        tell("reply", text=said, turn="t-1", outcome="done", tools=["message"])


def _buttons(choices: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"label": label, "value": value} for label, value in choices]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def gateway(home: Path) -> Iterator[FakeGateway]:
    fake = FakeGateway(home)
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    """Return the environment of a nanobot process: our home, our code, nothing of the person's."""
    ours = os.pathsep.join(folder for folder in sys.path if folder)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ours,
        "NANOBOT_HOME": str(home),
        "HOME": str(home.parent),
        "LANG": "C.UTF-8",
    }


@pytest.fixture
def nanobot(environment: dict[str, str]) -> Nanobot:
    """Run `nanobot` as a separate process, with pipes."""

    def run(*arguments: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [sys.executable, "-m", "nanobot", *arguments],
            input=given, capture_output=True, env=environment, timeout=30, check=False,
        )  # fmt: skip
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    return run


@pytest.fixture
def here(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Nanobot]:
    """Run `nanobot` in the process of the tests, which saves a second each time: for its output,
    not for its start and end."""

    def run(*arguments: str, stdin: str | bytes | None = None) -> subprocess.CompletedProcess[str]:
        if stdin is not None:
            given = stdin.encode() if isinstance(stdin, str) else stdin
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        capsys.readouterr()
        code = main(["--home", str(home), *arguments])
        told = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, told.out, told.err)

    yield run
    logger.remove()  # a command sets up its own log
