"""What is kept of the prompts of the conversations used last, so that each is rendered once.

What always holds: what is dropped here is rendered again when it is needed, from the same files and
so to the same bytes. How much memory that takes does not grow with the people who send pictures.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import date

from nanobot.providers.port import PromptMessage, Toolset
from nanobot.session.session import Session

MOST_PICTURE_BYTES = 32 * 1024 * 1024
_MOST_EPOCHS = 256


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the system prompt. `source` is the file it came from, empty for built-in text."""

    text: str
    source: str = ""


@dataclass(slots=True)
class Epoch:
    """A session's frozen prompt and the messages rendered so far, those of seq `first` to `newest`.

    `shares` are the files in the system prompt, each with the number of its characters there.
    `memory` is what the conversation has been told of memory, `offered` what it will have been once
    the running turn is stored; `remembered` is whether the journal has the system prompt. `blind`:
    the `model` has refused the images of this conversation, so it gets none. `forgotten` is how
    often something had been forgotten when it began; `picture_bytes` is about how much memory the
    rendered messages with images take.
    """

    session: Session
    label: str
    revision: int
    today: date
    system: PromptMessage
    system_id: str
    shares: tuple[tuple[str, int], ...]
    memory: str | None
    offered: str | None
    fixed_tokens: int
    tools: Toolset
    forgotten: int
    remembered: bool = False
    rendered: list[PromptMessage] = field(default_factory=list)
    first: int = 0
    newest: int = 0
    has_images: bool = False
    blind: bool = False
    model: str = ""
    tokens: int = 0
    picture_bytes: int = 0

    def add(self, rendered: PromptMessage) -> None:
        """Keep one more."""
        self.rendered.append(rendered)
        self.tokens += rendered.tokens
        if rendered.images:
            self.has_images = True
            self.picture_bytes += len(rendered.wire) + sum(len(i.data) for i in rendered.images)

    def render_anew(self) -> None:
        """Forget what was rendered."""
        self.rendered, self.newest, self.tokens = [], 0, 0
        self.has_images, self.picture_bytes = False, 0


class Epochs:
    """The epochs of the conversations used last. `most_picture_bytes` is how much memory pictures
    may take; those of the conversation used last are kept in any case."""

    def __init__(self, most_picture_bytes: int) -> None:
        self._most_picture_bytes = most_picture_bytes
        self._by_key: OrderedDict[str, Epoch] = OrderedDict()

    def get(self, key: str) -> Epoch | None:
        """The one of a conversation."""
        return self._by_key.get(key)

    def use(self, epoch: Epoch) -> None:
        """It is the one of its conversation, which is the one used last."""
        key = epoch.session.key
        self._by_key[key] = epoch
        self._by_key.move_to_end(key)
        if len(self._by_key) > _MOST_EPOCHS:
            self._by_key.popitem(last=False)

    def drop_pictures(self) -> None:
        """Where pictures take too much memory, forget what was rendered of the conversations with
        some that were used longest ago."""
        taken = sum(epoch.picture_bytes for epoch in self._by_key.values())
        for epoch in list(self._by_key.values())[:-1]:
            if taken <= self._most_picture_bytes:
                return
            if epoch.picture_bytes:
                taken -= epoch.picture_bytes
                epoch.render_anew()
