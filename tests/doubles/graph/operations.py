"""The effects of valid requests on the world."""

from __future__ import annotations

from collections.abc import Sequence

from tests.doubles.graph.errors import (
    BAD_MEDIA,
    BAD_PARAMETER,
    NO_SUCH_OBJECT,
    UNDELIVERABLE,
    WINDOW_CLOSED,
)
from tests.doubles.graph.media import check_upload, fits_kind
from tests.doubles.graph.notices import Notices
from tests.doubles.graph.people import about
from tests.doubles.graph.rules import KINDS
from tests.doubles.graph.values import (
    Button,
    Call,
    Json,
    Refusal,
    Sent,
    Upload,
    as_object,
    objects,
    string,
)
from tests.doubles.graph.world import Person, World


class Operations:
    """`receipts` are the statuses after each delivered message. `number` is the visible number of
    the business."""

    def __init__(
        self, world: World, notices: Notices, receipts: Sequence[str], number: str, name: str
    ) -> None:
        self._world = world
        self._notices = notices
        self._receipts = receipts
        self._facts: Json = {
            "display_phone_number": f"+{number}",
            "verified_name": name,
            "quality_rating": "GREEN",
            "platform_type": "CLOUD_API",
        }

    def number(self, call: Call, number_id: str) -> Json:
        """Return facts about the phone number."""
        asked = call.text("fields").split(",")
        return {"id": number_id, **{key: self._facts[key] for key in asked if key in self._facts}}

    def read(self, call: Call) -> Json:
        """Mark a message as read, and show the typing indicator."""
        message_id = call.text("message_id")
        if message_id not in self._world.heard:
            raise Refusal(BAD_PARAMETER, "Message with this id does not exist.")
        self._world.reads.append(message_id)
        if "typing_indicator" in call.fields:
            self._world.typing.append(message_id)
        self._world.changes.tell()
        return {"success": True}

    def upload(self, call: Call) -> Json:
        """Store a file."""
        assert call.file is not None
        check_upload(call.file)
        return {"id": self._world.store(call.file).id}

    def media(self, file_id: str) -> Json:
        """Return the address of a file."""
        file = self._world.files.get(file_id)
        if file is None:
            details = f"Object with ID '{file_id}' does not exist."
            raise Refusal(BAD_PARAMETER, details, subcode=NO_SUCH_OBJECT)
        return {
            "messaging_product": "whatsapp",
            "url": self._world.url_of(file),
            "mime_type": file.upload.mime,
            "sha256": file.digest.hex(),
            "file_size": file.size,
            "id": file.id,
        }

    def file(self, call: Call) -> Upload:
        """Return the content of a file while its address is valid."""
        stored = self._world.file_at(dict(call.fields))
        if stored is None:
            raise Refusal(BAD_PARAMETER, "URL signature expired", http=404)
        return stored.upload

    def send(self, call: Call) -> Json:
        """Accept a message. Its fate is reported later."""
        sent = self._message(call)
        person = self._world.find(call.person)
        code = self._obstacle(person)
        if code:
            self._tell(sent, "failed", code)
        else:
            assert person is not None
            self._world.show(sent)
            for status in self._receipts:
                self._tell(sent, status)
        contact: Json = {"input": call.text("to") or call.text("recipient")}
        if person is not None:
            contact |= {"wa_id": person.number} if person.number else {"user_id": person.user_id}
        return {
            "messaging_product": "whatsapp",
            "contacts": [contact],
            "messages": [{"id": sent.id}],
        }

    def _obstacle(self, person: Person | None) -> int:
        if person is None or person.gone:
            return UNDELIVERABLE
        return 0 if self._world.open_to(person) else WINDOW_CLOSED

    def _tell(self, sent: Sent, status: str, code: int = 0) -> None:
        number = "" if "." in sent.person else sent.person
        self._notices.status(about(sent.id, number, status, self._world.date, code))

    def _message(self, call: Call) -> Sent:
        kind = call.text("type")
        content = as_object(call.fields[kind])
        known = self._world.find(call.person)
        text = {
            "text": content.get("body"),
            "interactive": as_object(content.get("body")).get("text"),
        }.get(kind, content.get("caption"))
        return Sent(
            id=self._world.message_id(),
            person=known.key if known else call.person,
            kind=kind,
            text=string(text),
            file=self._attach(kind, content),
            buttons=_buttons(as_object(content.get("action"))),
            listed=content.get("type") == "list",
            reply_to=string(as_object(call.fields.get("context")).get("message_id")),
        )

    def _attach(self, kind: str, content: Json) -> Upload | None:
        if kind not in KINDS:
            return None
        stored = self._world.files.get(string(content["id"]))
        if stored is None:
            raise Refusal(BAD_PARAMETER, f"Param {kind}['id'] is not a valid media ID")
        if not fits_kind(kind, stored.upload):
            raise Refusal(BAD_MEDIA, f"the file is too large for a {kind} or of another type")
        name = string(content.get("filename")) or stored.upload.name
        return Upload(name, stored.upload.mime, stored.upload.content)


def _buttons(action: Json) -> tuple[Button, ...]:
    replies = [as_object(one.get("reply")) for one in objects(action.get("buttons"))]
    for section in objects(action.get("sections")):
        replies += objects(section.get("rows"))
    return tuple(Button(str(one["id"]), str(one["title"])) for one in replies)
