"""Actions of people: each method here is posted to the webhook of the business.

`PERSON` is the default. People are identified by their number in digits, or by their user id if
they hide the number. `fields` are added to the message unchanged, in the words of the API, and
replace the double's own: a `group_id` makes it a message to that group, which is then named like a
person. Methods that write return the id of the message."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.doubles.graph.errors import fate
from tests.doubles.graph.media import OGG, PNG
from tests.doubles.graph.notices import Notices
from tests.doubles.graph.values import Json, Upload, string
from tests.doubles.graph.world import PERSON, World

_UNSUPPORTED = 131051


class People:
    """The part of `FakeGraphAPI` for a test."""

    def __init__(self, world: World, notices: Notices, number: str) -> None:
        self._world = world
        self._notices = notices
        self._own = number
        self.person(PERSON, name="Robin")

    def person(self, key: str, *, name: str = "", user_id: str = "") -> str:
        """Add a person by their number or, if it is hidden, by their user id. With `user_id` both
        are known. They have not written yet."""
        somebody = self._world.meet(key)
        somebody.name = name or somebody.name
        somebody.user_id = user_id or somebody.user_id
        return somebody.key

    def together(self) -> AbstractContextManager[None]:
        """Send all events of the block in one request."""
        return self._notices.together()

    def say(self, text: str, *, person: str = PERSON, reply_to: str = "", **fields: object) -> str:
        """Write text."""
        return self.post({"type": "text", "text": {"body": text}, **fields}, person, reply_to)

    def forward(self, text: str, *, person: str = PERSON) -> str:
        """Forward another person's message."""
        return self.say(text, person=person, context={"forwarded": True})

    def image(
        self, content: bytes = PNG, *, caption: str = "", mime: str = "image/png", **where: str
    ) -> str:
        """Send a picture. `where`: `person` and `reply_to` as for `say`."""
        return self._file("image", Upload("", mime, content), caption, where)

    def voice(self, content: bytes = OGG, **where: str) -> str:
        """Send a voice note."""
        upload = Upload("", "audio/ogg; codecs=opus", content)
        return self._file("audio", upload, "", where, voice=True)

    def video(self, content: bytes = b"....ftyp", *, caption: str = "", **where: str) -> str:
        """Send a film."""
        return self._file("video", Upload("", "video/mp4", content), caption, where)

    def sticker(self, content: bytes = b"RIFF....WEBP", **where: str) -> str:
        """Send a sticker."""
        upload = Upload("", "image/webp", content)
        return self._file("sticker", upload, "", where, animated=False)

    def document(
        self,
        content: bytes = b"A document.\n",
        *,
        name: str = "notes.txt",
        mime: str = "text/plain",
        caption: str = "",
        size: int | None = None,
        **where: str,
    ) -> str:
        """Send a file. With `size` (bytes) the server reports another size."""
        upload = Upload(name, mime, content)
        return self._file("document", upload, caption, where, size, filename=name)

    def location(self, latitude: float = 52.52, longitude: float = 13.4, **where: str) -> str:
        """Send a place."""
        place = {"latitude": latitude, "longitude": longitude, "name": "A place"}
        return self.post({"type": "location", "location": place}, **where)

    def unsupported(self, kind: str = "poll", **where: str) -> str:
        """Send a message that the API cannot represent."""
        about: Json = {"errors": [fate(_UNSUPPORTED)], "unsupported": {"type": kind}}
        return self.post({"type": "unsupported", **about}, **where)

    def react(self, message_id: str, emoji: str = "👍", *, person: str = PERSON) -> str:
        """Put an emoji on a message."""
        reaction = {"message_id": message_id, "emoji": emoji}
        return self.post({"type": "reaction", "reaction": reaction}, person)

    def press(self, message_id: str, label: str, *, person: str = PERSON) -> str:
        """Press the button (or choose the row) with this label. Fail without it."""
        sent = self._world.sent[message_id]
        button_id = next((one.id for one in sent.buttons if one.label == label), None)
        if button_id is None:
            raise LookupError(f"the message has no button {label!r}, but {sent.labels}")
        kind = "list_reply" if sent.listed else "button_reply"
        chosen: Json = {"type": kind, kind: {"id": button_id, "title": label}}
        return self.post({"type": "interactive", "interactive": chosen}, person, message_id)

    def edit(self, message_id: str, text: str, *, person: str = PERSON) -> str:
        """Edit the text of an own message."""
        changed: Json = {"context": {"id": "M0"}, "type": "text", "text": {"body": text}}
        edit: Json = {"original_message_id": message_id, "message": changed}
        return self.post({"type": "edit", "edit": edit}, person)

    def delete(self, message_id: str, *, person: str = PERSON) -> str:
        """Delete an own message."""
        return self.post({"type": "revoke", "revoke": {"original_message_id": message_id}}, person)

    def post(self, content: Json, person: str = PERSON, reply_to: str = "") -> str:
        """Send any message. `content` has the fields of its kind."""
        somebody, message_id = self._world.meet(person), self._world.message_id()
        message: Json = {
            **somebody.sender,
            "id": message_id,
            "timestamp": str(self._world.date),
            **({"context": self._context(reply_to)} if reply_to else {}),
            **content,
        }
        if group := string(content.get("group_id")):
            self._world.note_message(self._world.meet(group), message_id)
        self._world.note_message(somebody, message_id)
        self._notices.message(message, somebody.contact)
        return message_id

    def put(self, message: object) -> None:
        """Send anything in place of a message, however malformed."""
        self._notices.message(message)

    def push(self, *changes: object) -> None:
        """Send a request with these changes, however malformed."""
        self._notices.push(*changes)

    def change_number(self, person: str, new: str) -> None:
        """Change a person's number, with the same user id."""
        somebody = self._world.meet(person)
        old, somebody.number = somebody.number, new
        words = f"User {somebody.name} changed from {old} to {new}"
        system: Json = {"body": words, "wa_id": new, "type": "user_changed_number"}
        self._notices.message(
            {
                "from": old,
                "id": self._world.message_id(),
                "timestamp": str(self._world.date),
                "type": "system",
                "system": system,
            }
        )

    def close_window(self, person: str = PERSON) -> None:
        """Close the 24-hour window until the person writes again."""
        self._world.meet(person).wrote = None

    def leave(self, person: str = PERSON) -> None:
        """Block the business or leave WhatsApp: nothing reaches the person any more."""
        self._world.meet(person).gone = True

    def status(self, message_id: str, status: str, code: int = 0) -> None:
        """Report the fate of a business message: "sent", "delivered", "read", or "failed" with the
        reason `code`."""
        somebody = self._world.find(self._world.sent[message_id].person)
        assert somebody is not None
        self._notices.status(about(message_id, somebody.number, status, self._world.date, code))

    def _context(self, message_id: str) -> Json:
        return {"from": self._world.heard.get(message_id, self._own), "id": message_id}

    def _file(
        self,
        kind: str,
        upload: Upload,
        caption: str,
        where: dict[str, str],
        size: int | None = None,
        **more: object,
    ) -> str:
        stored = self._world.store(upload, size)
        if caption:
            more["caption"] = caption
        content = stored.in_message(self._world.url_of(stored), **more)
        return self.post({"type": kind, kind: content}, **where)


def about(message_id: str, number: str, status: str, date: int, code: int = 0) -> Json:
    """Return a status in the form of a payload."""
    fields: Json = {"id": message_id, "status": status, "timestamp": str(date)}
    if number:
        fields["recipient_id"] = number
    if code:
        fields["errors"] = [fate(code)]
    else:
        fields["pricing"] = {"billable": False, "pricing_model": "PMP", "category": "service"}
    return fields
