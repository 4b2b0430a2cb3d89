"""The thin client of a running gateway, over `state/gateway.sock`. Quick to import.

It imports only the errors of the core and the wire format of the CLI channel. `NoGateway` means
that nothing was done, so the request can go to another gateway: no process listens on the socket,
or the gateway is shutting down and rejected the request, or the kernel reports it as unread.
`ConnectionLost` means that the gateway read the request and may have executed it. A message can be
sent again in either case, because its id is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nanobot.errors import HomeLocked, NanobotError, StorageError
from nanobot.gateway import MAX_FRAME, SOCKET_NAME
from nanobot_cli.text import one_line
from nanobot_cli.wire import ChatEvent, ChatRequest, Refused, Reply, parse_event

if TYPE_CHECKING:
    from datetime import tzinfo
    from pathlib import Path

RECONNECT_SECONDS = 3.0
"""Seconds to look for the socket of a gateway that is starting."""
REJOIN_SECONDS = 20.0
"""The same where nobody waits in front of a screen."""

ASIDE_SECONDS = 8.0
"""A model server may take five to list what it has."""

_BLOCK = 1 << 20


class NoGateway(NanobotError):
    """No gateway runs on this home, or it is shutting down and has not executed the request."""


class ConnectionLost(NanobotError):
    """The gateway went away before its answer came. Exit code 69: service unavailable."""

    exit_code = 69


class Data(dict[str, object]):
    """What an operation answers, or an object in it.

    What is printed comes from the gateway or the files: every value passes `one_line` here or
    `clean` in `print_text` before it is shown. A field that is missing shows as nothing.
    """

    def field(self, key: str, width: int = 200) -> str:
        """A value as one line; empty where it is missing."""
        value = self.get(key)
        return "" if value is None else one_line(str(value), width)

    def fields(self, *keys: str) -> list[str]:
        """Several values, each as one line."""
        return [self.field(key) for key in keys]

    def lines(self, key: str) -> list[str]:
        """The values of a list, each as one line; of anything else the one that it is."""
        value = self.get(key) or []
        found = value if isinstance(value, list | tuple) else [value]
        return [one_line(str(one), 2_000) for one in found]

    def minute(self, key: str) -> str:
        """A time as `2026-11-21 09:30`, in the zone that it has; empty where it is missing."""
        return self.field(key)[:16].replace("T", " ")

    def local_minute(self, key: str, zone: tzinfo | None) -> str:
        """The same in a time zone, or in the system's."""
        from datetime import datetime

        given = self.field(key)
        moment = datetime.fromisoformat(given).astimezone(zone) if given else ""
        return str(moment)[:16]

    def text(self, key: str) -> str:
        """A text as it is, several lines perhaps."""
        value = self.get(key)
        return "" if value is None else str(value)

    def number(self, key: str) -> int:
        """A count; 0 where it is missing."""
        value = self.get(key)
        return int(value) if isinstance(value, int | float) else 0

    def counts(self, **labels: str) -> str:
        """`2 waiting, 1 failed`; `empty` where all are 0."""
        counted = ((self.number(key), label) for key, label in labels.items())
        return ", ".join(f"{number} {label}" for number, label in counted if number) or "empty"

    def record(self, key: str) -> Data:
        """An object in the data; empty where it is missing."""
        value = self.get(key)
        return Data(value) if isinstance(value, dict) else Data()

    def records(self, key: str) -> list[Data]:
        """A list of objects in the data; empty where it is missing."""
        value = self.get(key)
        found = value if isinstance(value, list) else []
        return [Data(one) for one in found if isinstance(one, dict)]


class Client:
    """A connection to the gateway of one home; raises `NoGateway` where none listens.

    A gateway that restarted between two messages is found again. `ask` waits for at most `timeout`
    seconds, or without limit.
    """

    def __init__(self, home: Path, timeout: float | None = None, *, connects: bool = True) -> None:
        self._home, self._folder, self._timeout = home, str(home / "state"), timeout
        self._buffer = bytearray()
        self._waiting: dict[str, ChatRequest] = {}
        """The unanswered messages, by id."""
        self._watch: ChatRequest | None = None
        self._was_told = self._was_lost = False
        """Whether this gateway announced its end, and whether an earlier one ended unannounced."""
        self.find_gateway: Callable[[], None] | None = None
        """Waits for or starts a gateway, then calls `connect`. None: search for some seconds."""
        self.is_hosted = False
        """Whether the gateway runs in this process, as none was there."""
        if connects:
            self.connect()

    def connect(self) -> None:
        """Connect to the gateway that runs now. Raises `NoGateway`."""
        self._socket = _connected(self._folder)
        self._socket.settimeout(self._timeout)

    @property
    def waiting(self) -> bool:
        """Whether a message that was sent has no last word yet."""
        return bool(self._waiting)

    def fileno(self) -> int:
        """What becomes readable when the gateway says something; -1 where it has hung up. Any call
        that raises `ConnectionLost`, and `say`, may change it."""
        return self._socket.fileno()

    def ask(self, operation: str, arguments: Mapping[str, object]) -> object:
        """Run one operation in the gateway and return its data; raises `NanobotError`.

        Not while a message is under way, nor while watching: the answer is the next line.
        """
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
            answer = _parsed(self._read(wait=True) or b"")
        except ConnectionLost as lost:
            if _is_unread(lost):
                raise NoGateway("the gateway has stopped") from lost
            raise
        if answer.get("ok") is True:
            return answer.get("data")
        refused = parse_event(answer)
        if not isinstance(refused, Refused):
            raise NanobotError(f"the gateway sent an invalid answer to {operation!r}")
        if refused.going:
            raise NoGateway(refused.error)
        raise NanobotError(refused.error, hint=refused.hint)

    def ask_aside(self, operation: str, arguments: Mapping[str, object]) -> object:
        """As `ask`, by a connection of its own, so at any time and from any thread; waits for
        `ASIDE_SECONDS` at most."""
        with Client(self._home, timeout=ASIDE_SECONDS) as other:
            return other.ask(operation, arguments)

    def send_message(self, text: str, session: str, *, stream: bool = False) -> str:
        """Send a message and return the id that its events will carry."""
        request = ChatRequest(new_id(), session, text, stream)
        if not self._waiting:
            self._find_again()
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
        """Receive from now on what else is said in `session`, also through gateways to come."""
        self._watch = ChatRequest(new_id(), session, "", watch=True)
        with contextlib.suppress(ConnectionLost):  # the next message finds another gateway
            self._send(self._watch.as_json())

    def arrived(self) -> Sequence[ChatEvent]:
        """What the gateway has said by now; waits for nothing more. Raises `NanobotError` where it
        went away without an answer, once what it said before that has been returned."""
        events: list[ChatEvent] = []
        try:
            while (line := self._read(wait=False)) is not None:
                events += self._events_in(line)
        except ConnectionLost as lost:
            if not events:
                self._resend(lost)
        return events

    def close(self) -> None:
        """Hang up; what was accepted is answered all the same."""
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
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
                with contextlib.suppress(ConnectionLost):  # found out when reading
                    for request in self._waiting.values():
                        self._send(request.as_json())
                return
        self._waiting.clear()
        raise lost

    def reconnect(self, seconds: float = RECONNECT_SECONDS) -> None:
        """Connect to the gateway that takes this one's place, and watch again. Raises `NoGateway`
        if none does within some seconds."""
        self.close()
        if self.find_gateway:
            self.find_gateway()
        else:
            self._search(seconds)
        self._buffer.clear()
        self._was_told = False
        if self._watch is not None:
            self._send(self._watch.as_json())

    def _search(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(NoGateway):
                return self.connect()
            if time.monotonic() >= deadline:
                raise NoGateway("no gateway is running")
            time.sleep(0.05)

    def _events_in(self, line: bytes) -> Iterator[ChatEvent]:
        """The event in a line of the gateway's, if it is one for us."""
        event = parse_event(_parsed(line))
        if isinstance(event, Refused) and event.going:  # it hangs up when its turns have ended
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
                f"the message is too large: {len(frame):,} bytes, and {MAX_FRAME:,} are allowed",
                hint="Save it as a file in the workspace, and mention the file.",
            )
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost() from error

    def _read(self, *, wait: bool) -> bytes | None:
        """The next line, without its end, once it is complete; None where it is not and we do not
        `wait`."""
        while b"\n" not in self._buffer:
            try:
                block = self._socket.recv(_BLOCK, 0 if wait else socket.MSG_DONTWAIT)
                if not block:
                    raise ConnectionAbortedError("the gateway hung up")
            except BlockingIOError:
                return None
            except OSError as error:
                raise self._lost() from error
            self._buffer += block
        line, _, self._buffer = self._buffer.partition(b"\n")
        return bytes(line)

    def _lost(self) -> ConnectionLost:
        sessions = dict.fromkeys(request.session for request in self._waiting.values())
        show = " and ".join(f"`nanobot sessions show {key}`" for key in sessions)
        return ConnectionLost(
            "lost the connection to the gateway before it answered",
            hint=(
                f"Accepted messages are kept and answered after a restart. Check {show} then, and "
                "send missing messages again."
            )
            if show
            else "Try again.",
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


def _is_unread(lost: ConnectionLost) -> bool:
    """Whether the kernel reports that the gateway has not read everything sent to it."""
    return isinstance(lost.__cause__, ConnectionResetError | BrokenPipeError)


def new_id() -> str:
    """A random request id, 32 hex digits."""
    return os.urandom(16).hex()


def _parsed(line: bytes) -> dict[str, object]:
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise NanobotError("the gateway sent an invalid answer")
    return answer
