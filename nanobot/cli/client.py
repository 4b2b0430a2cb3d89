"""The thin client of a running gateway, over `state/gateway.sock`. Quick to import.

It imports only the errors of the core and the wire format of the CLI channel. `NoGateway` means
that nothing was done, so the request can go to another gateway: no process listens, the gateway
rejected the request because it is shutting down, or the kernel reports it as unread.
`ConnectionLost` means that the gateway read the request and may have executed it. A message can be
resent in either case, because its id is known."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nanobot.errors import ConnectionLost, HomeLocked, NanobotError, NoGateway, StorageError
from nanobot.gateway import MAX_FRAME, SOCKET_NAME
from nanobot_cli.text import one_line
from nanobot_cli.wire import ChatEvent, ChatRequest, Refused, Reply, SharedFile, parse_event

if TYPE_CHECKING:
    from datetime import tzinfo
    from pathlib import Path

RECONNECT_SECONDS = 3.0
"""Seconds to look for the socket of a gateway that is starting."""
REJOIN_SECONDS = 20.0
"""The same, if no person is waiting at a screen."""

ASIDE_SECONDS = 8.0
"""Timeout of `ask_aside`: a model server may take five seconds to list its models."""

_BLOCK = 1 << 20


class Data(dict[str, object]):
    """The answer of an operation, or an object in it.

    Its values come from the gateway or from files, so each passes `one_line` here or `clean` in
    `print_text` before it is printed. A missing field is empty."""

    def field(self, key: str, width: int = 200) -> str:
        """Return a value as one line, empty if it is missing."""
        value = self.get(key)
        return "" if value is None else one_line(str(value), width)

    def fields(self, *keys: str) -> list[str]:
        """Return several values, each as one line."""
        return [self.field(key) for key in keys]

    def lines(self, key: str) -> list[str]:
        """Return the values of a list, each as one line. Any other value counts as a list of
        one."""
        value = self.get(key) or []
        found = value if isinstance(value, list | tuple) else [value]
        return [one_line(str(one), 2_000) for one in found]

    def minute(self, key: str) -> str:
        """Return a time such as `2026-11-21 09:30` in its own zone, empty if it is missing."""
        return self.field(key)[:16].replace("T", " ")

    def local_minute(self, key: str, zone: tzinfo | None) -> str:
        """Return a time in a zone (None: the system's), such as `2026-11-21 09:30`."""
        from datetime import datetime

        given = self.field(key)
        moment = datetime.fromisoformat(given).astimezone(zone) if given else ""
        return str(moment)[:16]

    def text(self, key: str) -> str:
        """Return a text unchanged, possibly with several lines."""
        value = self.get(key)
        return "" if value is None else str(value)

    def number(self, key: str) -> int:
        """Return a count, 0 if it is missing."""
        value = self.get(key)
        return int(value) if isinstance(value, int | float) else 0

    def counts(self, **labels: str) -> str:
        """Return `2 waiting, 1 failed`, or `empty` if all are 0."""
        counted = ((self.number(key), label) for key, label in labels.items())
        return ", ".join(f"{number} {label}" for number, label in counted if number) or "empty"

    def record(self, key: str) -> Data:
        """Return an object in the data, empty if it is missing."""
        value = self.get(key)
        return Data(value) if isinstance(value, dict) else Data()

    def records(self, key: str) -> list[Data]:
        """Return a list of objects in the data, empty if it is missing."""
        value = self.get(key)
        found = value if isinstance(value, list) else []
        return [Data(one) for one in found if isinstance(one, dict)]


class Client:
    """A connection to the gateway of one home. Raises `NoGateway` if none listens.

    It finds a gateway that restarted between two messages. `ask` waits for at most `timeout`
    seconds, or without limit."""

    def __init__(self, home: Path, timeout: float | None = None, *, connects: bool = True) -> None:
        self._home, self._folder, self._timeout = home, str(home / "state"), timeout
        self._buffer = bytearray()
        self._waiting: dict[str, ChatRequest] = {}
        """The unanswered messages, by id."""
        self._watch: ChatRequest | None = None
        self._was_told = self._was_lost = False
        """This gateway announced its end; an earlier one ended unannounced."""
        self.find_gateway: Callable[[], None] | None = None
        """A function that waits for or starts a gateway, then calls `connect`. None: search for
        some seconds."""
        self.is_hosted = False
        """True if this process hosts the gateway."""
        if connects:
            self.connect()

    def connect(self) -> None:
        """Connect to the gateway that runs now. Raises `NoGateway`."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        directory = -1
        try:  # an address has at most 107 bytes, so name the folder by its descriptor
            directory = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            connection.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
        except OSError as error:
            connection.close()
            if isinstance(error, FileNotFoundError | NotADirectoryError | ConnectionRefusedError):
                raise NoGateway("no gateway is running") from None
            raise StorageError.of(f"{self._folder}/{SOCKET_NAME}", error) from error
        finally:
            if directory >= 0:
                os.close(directory)
        connection.settimeout(self._timeout)
        self._socket = connection

    @property
    def waiting(self) -> bool:
        """True if a message that was sent has no reply yet."""
        return bool(self._waiting)

    def fileno(self) -> int:
        """Return the descriptor to wait for events on, or -1 if the gateway has hung up.
        `send_message` and any call that raises `ConnectionLost` may change it."""
        return self._socket.fileno()

    def ask(self, operation: str, arguments: Mapping[str, object]) -> object:
        """Run one operation in the gateway and return its data. Raises `NanobotError`.

        Not while a message is unanswered or while watching: the answer is the next line."""
        while True:
            try:
                return self._ask(operation, arguments)
            except NoGateway:
                if self.find_gateway is None:
                    raise
            self.reconnect()

    def _ask(self, operation: str, arguments: Mapping[str, object]) -> object:
        try:
            self._send({**arguments, "op": operation})
            answer = _parse_answer(self._read(wait=True) or b"")
        except ConnectionLost as lost:
            if _is_unread(lost):
                raise NoGateway("the gateway has stopped") from lost
            raise
        if answer.get("ok") is True:
            return answer.get("data")
        refused = parse_event(answer)
        if not isinstance(refused, Refused):
            raise NanobotError(f"the gateway sent an invalid response to {operation!r}")
        if refused.going:
            raise NoGateway(refused.error)
        raise NanobotError(refused.error, hint=refused.hint)

    def ask_aside(self, operation: str, arguments: Mapping[str, object]) -> object:
        """Ask over a separate connection, so at any time and from any thread, for at most
        `ASIDE_SECONDS`."""
        with Client(self._home, timeout=ASIDE_SECONDS) as other:
            return other.ask(operation, arguments)

    def send_message(
        self,
        text: str,
        session: str,
        *,
        stream: bool = False,
        files: Sequence[tuple[str, bytes]] = (),
        earlier: Sequence[Mapping[str, str]] = (),
    ) -> str:
        """Send a message with its files, in a temporary chat with the messages before it, and
        return the id that its events will carry."""
        attached = [SharedFile(name, b64encode(data).decode()) for name, data in files]
        request = ChatRequest(new_id(), session, text, stream)
        request = request._replace(attached=tuple(attached), earlier=tuple(earlier))
        if not self._waiting:
            self._find_again()
        self._waiting[request.id] = request
        try:
            self._send(request.as_json())
        except ConnectionLost:  # the next read handles it
            pass
        except NanobotError:
            del self._waiting[request.id]
            raise
        return request.id

    def watch(self, session: str) -> None:
        """Receive all later events of `session`, also after a reconnect, and those of the
        terminal's other conversations that no client watches. A later call replaces this one."""
        self._watch = ChatRequest(new_id(), session, "", watch=True, everywhere=True)
        with contextlib.suppress(ConnectionLost):  # the next message finds another gateway
            self._send(self._watch.as_json())

    def read_events(self) -> Sequence[ChatEvent]:
        """Return the events that have arrived, without waiting. If the gateway went away without an
        answer, return its last events first, then raise `NanobotError`."""
        events: list[ChatEvent] = []
        try:
            while (line := self._read(wait=False)) is not None:
                events += self._events_in(line)
        except ConnectionLost as lost:
            if not events:
                self._resend(lost)
        return events

    def close(self) -> None:
        """Hang up. Accepted messages are still answered."""
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find_again(self) -> None:
        """Reconnect if the gateway has hung up: it may just have been restarted."""
        try:
            if self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                return
        except BlockingIOError:  # nothing to read, but connected
            return
        except OSError:
            pass
        self.reconnect()

    def _resend(self, lost: ConnectionLost) -> None:
        """Send the unanswered messages to the next gateway. Raises `lost` if there is none, or if
        two gateways in a row end unannounced. The ids stay the same, so a stored message is not
        handled twice: its answer is awaited."""
        self.close()
        if not self._waiting:
            return
        has_read = not (self._was_told or _is_unread(lost))
        if not (has_read and self._was_lost):
            self._was_lost = has_read
            with contextlib.suppress(NoGateway, HomeLocked):
                self.reconnect()
                with contextlib.suppress(ConnectionLost):  # the next read handles it
                    for request in self._waiting.values():
                        self._send(request.as_json())
                return
        self._waiting.clear()
        raise lost

    def reconnect(self, seconds: float = RECONNECT_SECONDS) -> None:
        """Connect to the next gateway, and watch again. Raises `NoGateway` if it takes too
        long."""
        self.close()
        if self.find_gateway:
            self.find_gateway()
        else:
            deadline = time.monotonic() + seconds
            while True:
                with contextlib.suppress(NoGateway):
                    self.connect()
                    break
                if time.monotonic() >= deadline:
                    raise NoGateway("no gateway is running")
                time.sleep(0.05)
        self._buffer.clear()
        self._was_told = False
        if self._watch is not None:
            self._send(self._watch.as_json())

    def _events_in(self, line: bytes) -> Iterator[ChatEvent]:
        """Yield the event in a line, if it is for us."""
        event = parse_event(_parse_answer(line))
        if isinstance(event, Refused) and event.going:  # it hangs up after its turns
            self._was_told = self._was_told or not event.id
            return
        if isinstance(event, Refused) and not event.id:
            raise NanobotError(event.error, hint=event.hint)
        if isinstance(event, Reply | Refused):
            self._was_lost = False
            if self._waiting.pop(event.id, None) is None:
                return
        if event is not None:
            yield event

    def _send(self, request: Mapping[str, object]) -> None:
        frame = json.dumps(request, separators=(",", ":")).encode("ascii") + b"\n"
        if len(frame) > MAX_FRAME:
            raise NanobotError(
                f"the message is too large: {len(frame):,} bytes (the limit is {MAX_FRAME:,})",
                hint="Save the text as a file in the workspace, and mention the file in your "
                "message.",
            )
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._describe_loss() from error

    def _read(self, *, wait: bool) -> bytes | None:
        """Return the next complete line, without its end. If there is none and `wait` is false,
        return None."""
        while b"\n" not in self._buffer:
            try:
                block = self._socket.recv(_BLOCK, 0 if wait else socket.MSG_DONTWAIT)
                if not block:
                    raise ConnectionAbortedError("the gateway closed the connection")
            except BlockingIOError:
                return None
            except OSError as error:
                raise self._describe_loss() from error
            self._buffer += block
        line, _, self._buffer = self._buffer.partition(b"\n")
        return bytes(line)

    def _describe_loss(self) -> ConnectionLost:
        sessions = dict.fromkeys(request.session for request in self._waiting.values())
        show = " and ".join(f"`nanobot sessions show {key}`" for key in sessions)
        return ConnectionLost(
            "lost the connection to the gateway before it answered",
            hint=(
                f"Accepted messages are kept and answered after a restart. Then check {show}, "
                "and send any missing messages again."
            )
            if show
            else "Try again.",
        )


def _is_unread(lost: ConnectionLost) -> bool:
    """Return True if the kernel reports that the gateway has not read everything sent to it."""
    return isinstance(lost.__cause__, ConnectionResetError | BrokenPipeError)


def new_id() -> str:
    """Return a random request id, 32 hex digits."""
    return os.urandom(16).hex()


def _parse_answer(line: bytes) -> dict[str, object]:
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise NanobotError("the gateway sent an invalid response")
    return answer
