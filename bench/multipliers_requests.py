"""Requests to each entry point, by the multiplied part: many small ones (up to the size limit, and
up to the limit of JSON marks), one large one, and deep ones."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

JSON, FORM = "application/json", "application/x-www-form-urlencoded"
UPLOAD = "multipart/form-data; boundary=X"
API_BYTES, HOOK_BYTES, MCP_BYTES, FRAME = 29_000_000, 2_900_000, 990_000, 15_000_000
"""A little less than the limit, or for the control socket the largest used size."""
LET_IN = 280_000
"""A little less than the limit of JSON marks."""


class Way(enum.Enum):
    """The entry point."""

    API = "api"
    TELEGRAM = "telegram"
    WHATSAPP = "whatsapp"
    PAGE = "page"
    CONTROL = "control"


@dataclass(frozen=True)
class Request:
    """One request. Its body is made when it is sent."""

    name: str
    way: Way
    path: str
    make: Callable[[], bytes]
    method: str = "POST"
    kind: str = JSON
    body: bytes = b""

    def with_body(self) -> Request:
        """Return the request with its body."""
        return replace(self, body=self.make())


Frame = tuple[str, str]
"""The text before and after the repeated part."""


def many(unit: str, size: int, frame: Frame, most: int = 10**9) -> bytes:
    """Repeat `unit`, separated by commas, up to `size` bytes."""
    before, after = frame
    times = min(most, (size - len(before) - len(after)) // (len(unit) + 1))
    return f"{before}{','.join([unit] * times)}{after}".encode()


def let_in(unit: str) -> int:
    """Return how many of these are accepted."""
    return LET_IN // (1 + sum(map(unit.count, ',[{"')))


def deep(depth: int, frame: Frame, opening: str = "[", closing: str = "]") -> bytes:
    """Nest `depth` levels."""
    return f"{frame[0]}{opening * depth}{closing * depth}{frame[1]}".encode()


def large(unit: str, size: int, frame: Frame) -> bytes:
    """Return one text of `size` bytes."""
    return f"{frame[0]}{unit * (size // len(unit))}{frame[1]}".encode()


def within(frame: Frame, inner: Frame) -> Frame:
    """Nest a frame in a frame."""
    return frame[0] + inner[0], inner[1] + frame[1]


def both(name: str, way: Way, path: str, unit: str, size: int, frame: Frame) -> Iterator[Request]:
    """Yield as many as the size limit allows, and as many as the limit of JSON marks allows."""
    yield Request(f"{name}: most", way, path, lambda: many(unit, size, frame))
    most = let_in(unit)
    yield Request(
        f"{name}: as many as are let in", way, path, lambda: many(unit, size, frame, most)
    )


CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
USER, TEXT = '{"role":"user","content":"hi"}', '{"type":"text","text":"x"}'
IMAGE = '{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}'
MESSAGES = '{"model":"nanobot","messages":[', "]}"
ITEMS = '{"model":"nanobot","input":[', "]}"
PARTS = within(MESSAGES, ('{"role":"user","content":[', "]}"))
SAID = within(MESSAGES, ('{"role":"user","content":"', '"}'))
BESIDE = f'{{"model":"nanobot","messages":[{USER}],"metadata":', "}"
LISTED = within(BESIDE, ("[", "]"))
FILED = within(PARTS, (f'{TEXT},{{"type":"file","file":{{', "}}"))
CALLED = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":', "}"


def _api() -> Iterator[Request]:
    shapes = {
        "messages": (CHAT, USER, MESSAGES),
        "parts": (CHAT, TEXT, PARTS),
        "images": (CHAT, IMAGE, PARTS),
        "messages of 200 parts": (CHAT, f'{{"role":"user","content":[{",".join([TEXT] * 200)}]}}',
                                  MESSAGES),
        "values": (CHAT, "1", LISTED),
        "objects": (CHAT, "{}", LISTED),
        "long numbers": (CHAT, "1" * 4_000, LISTED),
        "items": (RESPONSES, USER, ITEMS),
        "tools' results": (RESPONSES, '{"type":"function_call_output"}',
                           within(ITEMS, (f"{USER},", ""))),
    }  # fmt: skip
    for name, (path, unit, frame) in shapes.items():
        yield from both(f"api {name}", Way.API, path, unit, API_BYTES, frame)
    long_one = USER.replace("hi", "word " * 2_800)

    def keys() -> bytes:
        return f"{BESIDE[0]}{{{','.join(_key(n) for n in range(90_000))}}}{BESIDE[1]}".encode()

    texts = {"words": "word ", "escapes": "\\u00e9", "escaped quotes": '\\"', "letter": "x",
             "commas": "a, ", "halves": "\\ud83d"}  # fmt: skip
    bodies: dict[str, tuple[str, Callable[[], bytes]]] = {
        "2,000 messages of 14 kB": (CHAT, lambda: many(long_one, API_BYTES, MESSAGES, 2_000)),
        "keys": (CHAT, keys),
        "deep": (CHAT, lambda: deep(2_000_000, BESIDE)),
        "900 levels": (CHAT, lambda: deep(900, BESIDE)),
        "a large number": (CHAT, lambda: large("1", 20_000_000, BESIDE)),
        "a large file": (CHAT, lambda: large(
            "QUFB", API_BYTES, within(FILED, ('"file_data":"data:text/plain;base64,', '"')))),
        "a large name": (CHAT, lambda: large("x", API_BYTES, within(
            FILED, ('"file_data":"data:text/plain;base64,QUFB","filename":"', '"')))),
        "large instructions": (RESPONSES, lambda: large(
            "word ", API_BYTES, ('{"model":"nanobot","input":"hi","instructions":"', '"}'))),
        "a large input": (RESPONSES, lambda: large(
            "word ", API_BYTES, ('{"model":"nanobot","input":"', '"}'))),
        "conversations": ("/v1/conversations", lambda: large("x", API_BYTES, ('{"a":"', '"}'))),
    }  # fmt: skip
    for name, (path, make) in bodies.items():
        yield Request(f"api {name}", Way.API, path, make)
    for name, unit in texts.items():
        yield Request(f"api a large text: {name}", Way.API, CHAT, _large(unit, API_BYTES, SAID))
    arguments = within(CALLED, ('{"name":"search_memory","arguments":{"text":', "}}"))
    shapes_of_mcp: dict[str, Callable[[], bytes]] = {
        "values": lambda: many("1", MCP_BYTES, within(arguments, ("[", "]"))),
        "deep": lambda: deep(400_000, arguments),
        "batch": lambda: many(CALLED[0] + "{}}", MCP_BYTES, ("[", "]")),
        "a large text": lambda: large("word ", MCP_BYTES, within(arguments, ('"', '"'))),
    }
    for name, make in shapes_of_mcp.items():
        yield Request(f"api mcp, {name}", Way.API, "/mcp", make)


def _large(unit: str, size: int, frame: Frame) -> Callable[[], bytes]:
    return lambda: large(unit, size, frame)


def _key(number: int) -> str:
    return f'"{number}":1'


_numbers = count(1_000)


def _update() -> Frame:
    number = next(_numbers)
    person = '"id":7,"is_bot":false,"first_name":"A"'
    return (
        f'{{"update_id":{number},"message":{{"message_id":{number},"date":1790000000,'
        f'"chat":{{"id":7,"type":"private"}},"from":{{{person}}},',
        "}}",
    )


def _telegram() -> Iterator[Request]:
    poll = (
        '"poll":{"id":"1","question":"q","total_voter_count":0,"is_closed":false,"type":"regular",'
        '"is_anonymous":true,"allows_multiple_answers":false,"options":['
    )
    text, entity = '"text":"' + "hello " * 600 + '"', '{"type":"bold","offset":0,"length":'
    size = '{"file_id":"a","file_unique_id":"b","width":1,"height":1}'
    shapes = {
        "entities": (f"{entity}1}}", (f'{text},"entities":[', "]")),
        "nested entities": (f"{entity}3000}}", (f'{text},"entities":[', "]")),
        "links": ('{"type":"text_link","offset":0,"length":1,"url":"https://a.b"}',
                  (f'{text},"entities":[', "]")),
        "photo sizes": (size, ('"photo":[', "]")),
        "poll options": ('{"text":"a","voter_count":0}', (poll, "]}")),
        "tasks": ('{"id":1,"text":"a"}', ('"checklist":{"title":"t","tasks":[', "]}")),
        "values": ("1", (f'{text},"x":[', "]")),
        "blocks": ('{"type":"paragraph","text":"a"}', ('"rich_message":{"blocks":[', "]}")),
    }  # fmt: skip
    for name, (unit, inner) in shapes.items():
        for most in (10**9, let_in(unit), 9_000 // (1 + unit.count(":"))):
            make = _frame_many(unit, inner, most)
            yield Request(f"telegram {name}: {most:,} at most", Way.TELEGRAM, "/telegram", make)
    texts = {"words": "word ", "markup": "*_[`", "halves": "\\ud83d", "commas": "a, "}
    for name, unit in texts.items():
        yield Request(f"telegram a large text: {name}", Way.TELEGRAM, "/telegram",
                      _in_update(unit, ('"text":"', '"')))  # fmt: skip
    reply = '{"message_id":1,"date":1,"chat":{"id":7,"type":"private"},"reply_to_message":'
    bodies = {
        "60 replies": ('"text":"hi","reply_to_message":' + reply * 60 + "{}" + "}" * 60),
        "lists in lists": '"text":"hi","x":' + "[" * 1_000_000 + "]" * 1_000_000,
        "objects in objects": '"text":"hi","x":' + '{"a":' * 90_000 + "1" + "}" * 90_000,
        "keys": '"text":"hi",' + ",".join(f'"k{n}":1' for n in range(90_000)),
    }
    for name, body in bodies.items():
        make = _in_update("", (body, ""))
        yield Request(f"telegram {name}", Way.TELEGRAM, "/telegram", make)


def _frame_many(unit: str, inner: Frame, most: int) -> Callable[[], bytes]:
    return lambda: many(unit, HOOK_BYTES, within(_update(), inner), most)


def _in_update(unit: str, inner: Frame) -> Callable[[], bytes]:
    def make() -> bytes:
        frame = within(_update(), inner)
        return large(unit, HOOK_BYTES, frame) if unit else f"{frame[0]}{frame[1]}".encode()

    return make


ACCOUNT = '{"object":"whatsapp_business_account","entry":', "}"
ENTRIES = within(ACCOUNT, ("[", "]"))
CHANGES = within(ENTRIES, ('{"id":"200000000000002","changes":[', "]}"))
VALUE = within(
    CHANGES,
    (
        '{"field":"messages","value":{"messaging_product":"whatsapp","metadata":{'
        '"display_phone_number":"15550001111","phone_number_id":"100000000000001"},',
        "}}",
    ),
)
ANN = '"contacts":[{"profile":{"name":"Ann"},"wa_id":"15550002222"}],'
SENT = '{"from":"15550002222","id":"wamid.%s","timestamp":"1777636800","type":"%s",'


def _whatsapp() -> Iterator[Request]:
    shapes = {
        "messages of nothing": ("{}", within(VALUE, (f'{ANN}"messages":[', "]"))),
        "messages of one id": (SENT % ("a", "text") + '"text":{"body":"hi"}}',
                               within(VALUE, (f'{ANN}"messages":[', "]"))),
        "statuses": ('{"id":"w","status":"failed","errors":[{"code":1}]}',
                     within(VALUE, ('"statuses":[', "]"))),
        "errors": ('{"code":1,"title":"x"}', within(VALUE, ('"errors":[', "]"))),
        "entries": ("{}", ENTRIES),
        "changes": ("{}", CHANGES),
        "cards": ("{}", within(VALUE, (
            f'{ANN}"messages":[{SENT % ("b", "contacts")}"contacts":[', "]}]"))),
        "phones": ('{"phone":"1"}', within(VALUE, (
            f'{ANN}"messages":[{SENT % ("c", "contacts")}"contacts":[{{"phones":[', "]}]}]"))),
        "people": ('{"profile":{"name":"B"},"wa_id":"15550003333"}', within(VALUE, (
            '"contacts":[', f'],"messages":[{SENT % ("d", "text")}"text":{{"body":"hi"}}}}]'))),
        "buttons": ('{"id":"1","title":"a"}', within(VALUE, (
            f'{ANN}"messages":[{SENT % ("e", "interactive")}"interactive":{{"button_reply":[',
            "]}}]"))),
    }  # fmt: skip
    for name, (unit, frame) in shapes.items():
        yield from both(f"whatsapp {name}", Way.WHATSAPP, "/whatsapp", unit, HOOK_BYTES, frame)

    def different(messages: int) -> bytes:
        said = (SENT % (f"m{n}", "text") + '"text":{"body":"hi"}}' for n in range(messages))
        frame = within(VALUE, (f'{ANN}"messages":[', "]"))
        return f"{frame[0]}{','.join(said)}{frame[1]}".encode()

    body = within(VALUE, (f'{ANN}"messages":[{SENT % ("f", "text")}"text":{{"body":"', '"}}]'))
    bodies: dict[str, Callable[[], bytes]] = {
        "1,000 messages": lambda: different(1_000),
        "10,000 messages": lambda: different(10_000),
        "a large text": lambda: large("word ", HOOK_BYTES, body),
        "deep": lambda: deep(1_000_000, ACCOUNT),
    }
    for name, make in bodies.items():
        yield Request(f"whatsapp {name}", Way.WHATSAPP, "/whatsapp", make)


def _multipart(parts: int, content: bytes) -> bytes:
    head = b'--X\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\n'
    return (head + content + b"\r\n") * parts + b"--X--\r\n"


def _page() -> Iterator[Request]:
    fields: dict[str, tuple[str, Callable[[], bytes], str]] = {
        "fields": ("/memory/edit", lambda: b"&".join(b"k%d=1" % n for n in range(200_000)), FORM),
        "one field again": ("/memory/edit", lambda: b"id=1&" * 500_000, FORM),
        "a large field": ("/memory/edit", lambda: b"new=" + b"word+" * 580_000, FORM),
        "a form of files": ("/chat/send", lambda: _multipart(20_000, b"x"), UPLOAD),
        "a large file": ("/chat/send", lambda: _multipart(1, b"x" * 15_000_000), UPLOAD),
        "a deep setting": ("/settings", lambda: b"key=agent.name&value=" + b"[" * 1_000_000, FORM),
        "a wide setting": ("/settings", lambda: b"key=a&value=[" + b"1," * 900_000 + b"1]", FORM),
    }
    for name, (path, make, kind) in fields.items():
        yield Request(f"page {name}", Way.PAGE, path, make, kind=kind)
    for path in (f"/memory/search?q={'a+' * 3_500}", "/memory?offset=99999999999999"):
        yield Request(f"page {path[:30]}", Way.PAGE, path, bytes, "GET")


def _control() -> Iterator[Request]:
    asked = '{"op":"status","x":', "}"
    found = '{"op":"memory.search","scope":"owner","text":"', '"}'
    for unit in ("1", "{}"):
        frame = within(asked, ("[", "]"))
        yield from both(f"control {unit}", Way.CONTROL, "", unit, FRAME, frame)
    bodies: dict[str, Callable[[], bytes]] = {
        "deep": lambda: deep(2_000_000, asked),
        "a large text": lambda: large("x", FRAME, within(asked, ('"', '"'))),
        "a large name": lambda: large("x", FRAME, ('{"op":"', '"}')),
        "a large search": lambda: large("word ", FRAME, found),
    }
    for name, make in bodies.items():
        yield Request(f"control {name}", Way.CONTROL, "", make)


REQUESTS = (*_api(), *_telegram(), *_whatsapp(), *_page(), *_control())
