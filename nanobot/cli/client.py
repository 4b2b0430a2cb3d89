"""The thin client: talks to a running gateway over `state/gateway.sock`; quick to import.

Of the core it needs the errors only, and of the CLI channel the values that travel. A socket that
nobody listens on means that no gateway runs (`NoGateway`); one that breaks off means that the
answer will be in the session (`ConnectionLost`).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from nanobot.errors import NanobotError, StorageError
from nanobot.gateway import MAX_FRAME, SOCKET_NAME
from nanobot_cli.wire import Accepted, ChatEvent, ChatRequest, Refused, Reply, parse_event

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 3.0
"""Seconds to look for the socket of a gateway that is starting."""

_BLOCK = 1 << 20


class NoGateway(NanobotError):
    """No gateway runs on this home."""


class ConnectionLost(NanobotError):
    """The gateway went away before its answer came. Exit code 69: service unavailable."""

    exit_code = 69


class Client:
    """A connection to the gateway of one home; raises `NoGateway` where none listens.

    A gateway that restarted between two messages is found again. `ask` waits for at most `timeout`
    seconds, or without limit.
    """

    def __init__(self, home: Path, timeout: float | None = None) -> None:
        self._folder = str(home / "state")
        self._socket = _connected(self._folder)
        self._socket.settimeout(timeout)
        self._buffer = bytearray()
        self._searched = 0
        """So much of the buffer holds no end of a line."""
        self._waiting: dict[str, ChatRequest] = {}
        self._watch: ChatRequest | None = None
        self._accepted: set[str] = set()
        self._may_resend = True

    @property
    def waiting(self) -> bool:
        """Whether a message that was sent has no last word yet."""
        return bool(self._waiting)

    @property
    def has_arrived(self) -> bool:
        """Whether `arrived` gives something at once, though `fileno` may tell of nothing."""
        return b"\n" in self._buffer

    def fileno(self) -> int:
        """What becomes readable when the gateway says something; -1 where it has hung up. Any call
        that raises `ConnectionLost`, and `say`, may change it."""
        return self._socket.fileno()

    def ask(self, operation: str, arguments: Mapping[str, object]) -> object:
        """Run one operation in the gateway and return its data; raises `NanobotError`.

        Not while a message is under way, nor while watching: the answer is the next line.
        """
        self._send({**arguments, "op": operation})
        answer = _parsed(self._read(wait=True) or b"")
        if answer.get("ok") is True:
            return answer.get("data")
        refused = parse_event(answer)
        if not isinstance(refused, Refused):
            raise NanobotError(f"the gateway's answer to {operation!r} makes no sense")
        raise NanobotError(refused.error, hint=refused.hint)

    def say(self, text: str, session: str, *, stream: bool = False) -> str:
        """Send a message and return the id that its events will carry."""
        request = ChatRequest(new_id(), session, text, stream)
        if not self._waiting:
            self._find_again()
            self._may_resend = True
        self._waiting[request.id] = request
        try:
            self._send(request.as_json())
        except ConnectionLost:  # found out, and dealt with, when reading
            pass
        except NanobotError:
            del self._waiting[request.id]
            raise
        return request.id

    def watch(self, session: str) -> None:
        """Hear from now on what else is said in `session`, also through gateways to come."""
        self._watch = ChatRequest(new_id(), session, "", watch=True)
        with contextlib.suppress(ConnectionLost):  # the next message finds another gateway
            self._send(self._watch.as_json())

    def arrived(self) -> Sequence[ChatEvent]:
        """What the gateway has said by now; waits for nothing more. Raises `NanobotError` where it
        went away without an answer, once what it said before that has been told."""
        events: list[ChatEvent] = []
        try:
            while (line := self._read(wait=False)) is not None:
                events += self._events_in(line)
        except ConnectionLost as lost:
            if not events:
                self._get_over(lost)
        return events

    def close(self) -> None:
        """Hang up; what was accepted is answered all the same."""
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _find_again(self) -> None:
        """Connect again if the gateway has hung up meanwhile: it may just have been restarted."""
        try:
            if self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                return
        except BlockingIOError:  # nothing to read: it is there
            return
        except OSError:
            pass
        self._reconnect()

    def _events_in(self, line: bytes) -> Iterator[ChatEvent]:
        """The event in a line of the gateway's, if it is one for us."""
        event = parse_event(_parsed(line))
        if isinstance(event, Accepted):
            self._accepted.add(event.id)
        elif isinstance(event, Refused) and not event.id:
            raise NanobotError(event.error, hint=event.hint)
        elif isinstance(event, Reply | Refused) and self._waiting.pop(event.id, None) is None:
            return
        if event is not None:
            yield event

    def _get_over(self, lost: ConnectionLost) -> None:
        """Send to the next gateway, once more, what none has confirmed; raises `lost` where that
        cannot be. The ids are the same, so what was stored without our knowing is refused, not done
        twice. Where nothing is under way, the next message finds the gateway."""
        self.close()
        if self._may_resend and self._waiting and self._accepted.isdisjoint(self._waiting):
            self._may_resend = False
            with contextlib.suppress(NoGateway, ConnectionLost):
                self._reconnect()
                for request in self._waiting.values():
                    self._send(request.as_json())
                return
        if self._waiting:  # what was said is in the gateway's hands, or in none
            self._waiting.clear()
            self._accepted.clear()
            raise lost

    def _reconnect(self) -> None:
        """Connect to the gateway that takes this one's place; raises `NoGateway` if none does."""
        self.close()
        self._buffer.clear()
        self._searched = 0
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._socket = _connected(self._folder)
                break
            except NoGateway:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.05)
        if self._watch is not None:
            self._send(self._watch.as_json())

    def _send(self, request: Mapping[str, object]) -> None:
        frame = json.dumps(request, separators=(",", ":")).encode("ascii") + b"\n"
        if len(frame) > MAX_FRAME:
            raise NanobotError(
                f"the message is too large: {len(frame):,} bytes of {MAX_FRAME:,} allowed",
                hint="Put it into a file in the workspace and name the file.",
            )
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost() from error

    def _read(self, *, wait: bool) -> bytes | None:
        """The next line, without its end, once it is complete; None where it is not and we do not
        `wait`."""
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            try:
                block = self._socket.recv(_BLOCK, 0 if wait else socket.MSG_DONTWAIT)
                if not block:
                    raise ConnectionResetError("the gateway hung up")
            except BlockingIOError:
                return None
            except OSError as error:
                raise self._lost() from error
            self._buffer += block
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line

    def _lost(self) -> ConnectionLost:
        sessions = {request.session for request in self._waiting.values()}
        if not sessions:
            return ConnectionLost("the gateway went away before it answered", hint="Try again.")
        show = " and ".join(f"`nanobot sessions show {session}`" for session in sorted(sessions))
        if self._accepted.issuperset(self._waiting):
            return ConnectionLost(
                "the gateway went away; your message is kept and will be answered once it is back",
                hint=f"See {show} then.",
            )
        return ConnectionLost(
            "the gateway went away before it confirmed your message",
            hint=f"See {show} once it is back, and send the message again if it is not there.",
        )


def _connected(state_folder: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = -1
    try:  # the address may have 107 bytes only, so the folder goes in as a descriptor
        directory = os.open(state_folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        connection.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
    except OSError as error:
        connection.close()
        if isinstance(error, FileNotFoundError | NotADirectoryError | ConnectionRefusedError):
            raise NoGateway("no gateway is running") from None
        raise StorageError.of(f"{state_folder}/{SOCKET_NAME}", error) from error
    finally:
        if directory >= 0:
            os.close(directory)
    return connection


def new_id() -> str:
    """A random request id, 32 hex digits."""
    return os.urandom(16).hex()


def _parsed(line: bytes) -> dict[str, object]:
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise NanobotError("the gateway's answer makes no sense")
    return answer
