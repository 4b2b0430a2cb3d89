"""What people do: each method here is posted to the webhook of the business.

Where nobody is named, `PERSON` does it. People are named by their number in digits, or by their
user id where they hide the number. `fields` are put into the message as they are, in the words of
the API, and win over what the double would write: a `group_id` makes it a message to that group,
which is then named like a person. Methods that write give the id of the message.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.doubles.graph.errors import fate
from tests.doubles.graph.media import OGG, PNG
from tests.doubles.graph.notices import Notices
from tests.doubles.graph.values import Json, Upload, string
from tests.doubles.graph.world import PERSON, World

_UNSUPPORTED = 131051


class People:
    """The part of `FakeGraphAPI` that a test plays."""

    def __init__(self, world: World, notices: Notices, number: str) -> None:
        self._world = world
        self._notices = notices
        self._own = number
        self.person(PERSON, name="Robin")

    def person(self, key: str, *, name: str = "", user_id: str = "") -> str:
        """Make somebody known, by their number or, where they hide it, by their user id; with
        `user_id` both are told. They did not write so far."""
        somebody = self._world.meet(key)
        somebody.name = name or somebody.name
        somebody.user_id = user_id or somebody.user_id
        return somebody.key

    def together(self) -> AbstractContextManager[None]:
        """What people do inside goes out in one request."""
        return self._notices.together()

    def say(self, text: str, *, person: str = PERSON, reply_to: str = "", **fields: object) -> str:
        """Write text."""
        return self.post({"type": "text", "text": {"body": text}, **fields}, person, reply_to)

    def forward(self, text: str, *, person: str = PERSON) -> str:
        """Pass on what somebody else wrote."""
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
        """Send a file; with `size` (bytes) the server claims another size than it has."""
        upload = Upload(name, mime, content)
        return self._file("document", upload, caption, where, size, filename=name)

    def location(self, latitude: float = 52.52, longitude: float = 13.4, **where: str) -> str:
        """Send a place."""
        place = {"latitude": latitude, "longitude": longitude, "name": "A place"}
        return self.post({"type": "location", "location": place}, **where)

    def unsupported(self, kind: str = "poll", **where: str) -> str:
        """Send what the API has no words for."""
        about: Json = {"errors": [fate(_UNSUPPORTED)], "unsupported": {"type": kind}}
        return self.post({"type": "unsupported", **about}, **where)

    def react(self, message_id: str, emoji: str = "👍", *, person: str = PERSON) -> str:
        """Put an emoji on a message."""
        reaction = {"message_id": message_id, "emoji": emoji}
        return self.post({"type": "reaction", "reaction": reaction}, person)

    def press(self, message_id: str, label: str, *, person: str = PERSON) -> str:
        """Press the button (or choose the row) with this label. Fails without it."""
        sent = self._world.sent[message_id]
        button_id = next((one.id for one in sent.buttons if one.label == label), None)
        if button_id is None:
            raise LookupError(f"the message has no button {label!r}, but {sent.labels}")
        kind = "list_reply" if sent.listed else "button_reply"
        chosen: Json = {"type": kind, kind: {"id": button_id, "title": label}}
        return self.post({"type": "interactive", "interactive": chosen}, person, message_id)

    def edit(self, message_id: str, text: str, *, person: str = PERSON) -> str:
        """Change the text of a message that they sent."""
        changed: Json = {"context": {"id": "M0"}, "type": "text", "text": {"body": text}}
        edit: Json = {"original_message_id": message_id, "message": changed}
        return self.post({"type": "edit", "edit": edit}, person)

    def delete(self, message_id: str, *, person: str = PERSON) -> str:
        """Delete a message that they sent."""
        return self.post({"type": "revoke", "revoke": {"original_message_id": message_id}}, person)

    def post(self, content: Json, person: str = PERSON, reply_to: str = "") -> str:
        """Any message: `content` has the fields that make its kind."""
        somebody, message_id = self._world.meet(person), self._world.message_id()
        message: Json = {
            **somebody.sender,
            "id": message_id,
            "timestamp": str(self._world.date),
            **({"context": self._context(reply_to)} if reply_to else {}),
            **content,
        }
        if group := string(content.get("group_id")):
            self._world.heard_from(self._world.meet(group), message_id)
        self._world.heard_from(somebody, message_id)
        self._notices.message(message, somebody.contact)
        return message_id

    def put(self, message: object) -> None:
        """Anything at all in the place of a message, however malformed."""
        self._notices.message(message)

    def push(self, *changes: object) -> None:
        """A request with these changes, however malformed."""
        self._notices.push(*changes)

    def change_number(self, person: str, new: str) -> None:
        """A person moves to another number, which has the same user id."""
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
        """From now on it is 24 hours since they wrote, until they do again."""
        self._world.meet(person).wrote = None

    def leave(self, person: str = PERSON) -> None:
        """A person blocks the business or leaves WhatsApp: nothing reaches them any more."""
        self._world.meet(person).gone = True

    def status(self, message_id: str, status: str, code: int = 0) -> None:
        """Say what became of a message of the business: "sent", "delivered", "read", or "failed"
        for the reason `code`."""
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
    """A status as it stands in a payload."""
    fields: Json = {"id": message_id, "status": status, "timestamp": str(date)}
    if number:
        fields["recipient_id"] = number
    if code:
        fields["errors"] = [fate(code)]
    else:
        fields["pricing"] = {"billable": False, "pricing_model": "PMP", "category": "service"}
    return fields
