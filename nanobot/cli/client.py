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
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType

from nanobot.errors import NanobotError
from nanobot.gateway.wire import MAX_FRAME, SOCKET_NAME
from nanobot_cli.wire import Accepted, ChatEvent, ChatRequest, Refused, Reply, parse_event

PATIENCE = 3.0
"""Seconds to look for the socket of a gateway that is starting."""

_STOP_PATIENCE = 2.0
"""Seconds that a client which is leaving waits for a turn to stop."""


class NoGateway(NanobotError):
    """No gateway runs on this home."""


class ConnectionLost(NanobotError):
    """The gateway went away before its answer came. Exit code 69: service unavailable."""

    exit_code = 69


class Client:
    """A connection to the gateway of one home; raises `NoGateway` where none listens.

    A gateway that is started anew between two messages is found again; where there is none,
    `revive` may start one.
    """

    def __init__(self, state_folder: str, revive: Callable[[], None] | None = None) -> None:
        self._folder = state_folder
        self._revive = revive
        self.hosting = False
        """Whether the gateway is in this process, and ends with it."""
        self._socket = _connected(state_folder)
        self._lines = self._socket.makefile("rb")
        self._waiting: dict[str, ChatRequest] = {}
        self._accepted: set[str] = set()
        self._may_resend = True

    def ask(self, operation: str, arguments: Mapping[str, object]) -> object:
        """Run one operation in the gateway and return its data; raises `NanobotError`.

        Not while a message is under way: the answer is the next line.
        """
        self._send(_frame({**arguments, "op": operation}))
        answer = self._next_line()
        if answer.get("ok") is True:
            return answer.get("data")
        refused = parse_event(answer)
        if not isinstance(refused, Refused):
            raise NanobotError(f"the gateway's answer to {operation!r} makes no sense")
        raise NanobotError(refused.error, hint=refused.hint)

    def say(self, text: str, session: str, *, stream: bool = False) -> str:
        """Send a message and return the id that its events will carry."""
        request = ChatRequest(new_id(), session, text, stream)
        frame = _frame(request.as_json())
        if not self._waiting:
            self._find_again()
            self._may_resend = True
        self._waiting[request.id] = request
        with contextlib.suppress(ConnectionLost):  # found out, and dealt with, when reading
            self._send(frame)
        return request.id

    def events(self) -> Iterator[ChatEvent]:
        """What the gateway says, for as long as one of the messages sent has no last word."""
        while self._waiting:
            try:
                event = parse_event(self._next_line())
            except ConnectionLost as lost:
                try:
                    self._resend(lost)
                except NanobotError:
                    self._forget()
                    raise
                continue
            if isinstance(event, Accepted):
                self._accepted.add(event.id)
            elif isinstance(event, Refused) and not event.id:
                raise NanobotError(event.error, hint=event.hint)
            elif isinstance(event, Reply | Refused):
                self._waiting.pop(event.id, None)
            if event is not None:
                yield event

    def reply(self, message_id: str) -> Iterator[ChatEvent]:
        """The events about one message that came before its reply, and the reply, which is last.

        Raises `NanobotError` where the gateway refused the message.
        """
        for event in self.events():
            if event.id != message_id:
                continue
            if isinstance(event, Refused):
                raise NanobotError(event.error, hint=event.hint)
            yield event
            if isinstance(event, Reply):
                return

    def stop(self, session: str) -> None:
        """Stop what runs in `session` as well as a client that is leaving can: best effort."""
        self._socket.settimeout(_STOP_PATIENCE)
        with contextlib.suppress(NanobotError):
            for _ in self.reply(self.say("/stop", session)):
                pass

    def close(self) -> None:
        """Hang up; what was accepted is answered all the same."""
        self._lines.close()
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
        """Connect anew if the gateway has hung up meanwhile: it may just have been restarted."""
        try:
            if self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                return
        except BlockingIOError:  # nothing to read: it is there
            return
        except OSError:
            pass
        try:
            self._reconnect()
        except NoGateway:
            if self._revive is None:
                raise
            self._revive()
            self._reconnect()

    def _resend(self, lost: ConnectionLost) -> None:
        """Say once more, to the next gateway, what none has confirmed; else raise `lost`.

        The ids are the same, so what was stored without our knowing is refused, not done twice.
        """
        if not self._may_resend or not self._accepted.isdisjoint(self._waiting):
            raise lost
        self._may_resend = False
        try:
            self._reconnect()
        except NoGateway:
            raise lost from None
        for request in self._waiting.values():
            self._send(_frame(request.as_json()))

    def _forget(self) -> None:
        """Expect nothing any more: what was said is in the gateway's hands, or in none."""
        self.close()
        self._waiting.clear()
        self._accepted.clear()

    def _reconnect(self) -> None:
        """Connect to the gateway that takes this one's place; raises `NoGateway` if none does."""
        self.close()
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._socket = _connected(self._folder)
                break
            except NoGateway:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.05)
        self._lines = self._socket.makefile("rb")

    def _send(self, frame: bytes) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost() from error

    def _next_line(self) -> dict[str, object]:
        try:
            line = self._lines.readline()
        except OSError as error:
            raise self._lost() from error
        if not line.endswith(b"\n"):
            raise self._lost()
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise NanobotError("the gateway's answer makes no sense") from error
        if not isinstance(answer, dict):
            raise NanobotError("the gateway's answer makes no sense")
        return answer

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
    try:
        directory = os.open(state_folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise NoGateway("no gateway is running") from None
    except OSError as error:
        raise NanobotError(f"cannot open {state_folder}: {error.strerror}") from error
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:  # the address may have 107 bytes only, so the folder goes in as a descriptor
        connection.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        raise NoGateway("no gateway is running") from None
    except OSError as error:
        connection.close()
        raise NanobotError(f"cannot reach the gateway: {error.strerror}") from error
    finally:
        os.close(directory)
    return connection


def new_id() -> str:
    """A random request id, 32 hex digits."""
    return os.urandom(16).hex()


def _frame(request: Mapping[str, object]) -> bytes:
    frame = json.dumps(request, separators=(",", ":")).encode("ascii") + b"\n"
    if len(frame) > MAX_FRAME:
        raise NanobotError(
            f"the message is too large: {len(frame):,} bytes on the wire, {MAX_FRAME:,} allowed",
            hint="Put it into a file in the workspace and name the file.",
        )
    return frame
