"""`FakeGraphAPI` is as strict as Meta about messages."""

from __future__ import annotations

from typing import Any

from tests.doubles.graph.rules import message_problem
from tests.doubles.graph.world import PERSON


def text(body: object = "hello", **more: object) -> dict[str, Any]:
    head = {"messaging_product": "whatsapp", "to": PERSON, "type": "text"}
    return {**head, "text": {"body": body}, **more}


def buttons(*titles: str, words: str = "Which?") -> dict[str, Any]:
    made = [{"type": "reply", "reply": {"id": f"id {one}", "title": one}} for one in titles]
    content = {"type": "button", "body": {"text": words}, "action": {"buttons": made}}
    return text(type="interactive", text=None) | {"interactive": content}


def list_message(count: int, title: str = "row") -> dict[str, Any]:
    rows = [{"id": str(number), "title": f"{title} {number}"} for number in range(count)]
    action = {"button": "Choose", "sections": [{"rows": rows}]}
    content = {"type": "list", "body": {"text": "Which?"}, "action": action}
    return text(type="interactive") | {"interactive": content}


def without(body: dict[str, Any], name: str = "text") -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != name}


def file(kind: str, **content: object) -> dict[str, Any]:
    return without(text(type=kind)) | {kind: {"id": "1", **content}}


READ = {"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.x"}
GOOD = {
    "text": text("😀" * 2048, context={"message_id": "wamid.x"}, recipient_type="individual"),
    "to a user id": without(text(recipient="US.134"), "to"),
    "three buttons": without(buttons("a", "b", "c")),
    "ten rows": without(list_message(10)),
    "caption": file("image", caption="c" * 1024),
    "file name": file("document", filename="a.pdf"),
    "read": READ,
    "typing": READ | {"typing_indicator": {"type": "text"}},
}
BAD = {
    "too long": text("x" * 4097),
    "empty": text(" "),
    "no text": text(None),
    "unknown field": text(parse_mode="Markdown"),
    "unknown type": text(type="poll"),
    "no address": without(text(), "to"),
    "two addresses": text(recipient="US.134"),
    "user id as number": text(to="US.134"),
    "jid as number": text(to=f"{PERSON}@s.whatsapp.net"),
    "not whatsapp": text(messaging_product="sms"),
    "four buttons": without(buttons("a", "b", "c", "d")),
    "same title": without(buttons("a", "a")),
    "long title": without(buttons("x" * 21)),
    "long text over buttons": without(buttons("a", words="x" * 1025)),
    "eleven rows": without(list_message(11)),
    "long row": without(list_message(1, "x" * 24)),
    "long caption": file("image", caption="c" * 1025),
    "caption on audio": file("audio", caption="c"),
    "name on image": file("image", filename="a.png"),
    "link": file("image", link="https://example.org/a.png"),
    "bad context": text(context={"id": "wamid.x"}),
    "bad typing": READ | {"typing_indicator": True},
}


def test_only_what_the_api_takes_is_taken() -> None:
    assert {
        name: message_problem(body) for name, body in GOOD.items() if message_problem(body)
    } == {}
    assert [name for name, body in BAD.items() if not message_problem(body)] == []
