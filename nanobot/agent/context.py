"""The prompt: what the model reads, built so that providers can cache it.

The system prompt and the tools of a session are frozen for an *epoch*: until the day changes,
`/new`, other tools are offered, the messages already sent change (consolidation, `/undo`, a
person's editor), or something is forgotten. Within an epoch each request extends the one before
byte for byte; what changes meanwhile in memory travels in the header of the newest message.
Messages are rendered once and kept (see `nanobot.agent.epochs`), so a turn costs what is new in it,
however long the conversation.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from typing import Protocol

from nanobot.agent.epochs import MOST_PICTURE_BYTES, Epoch, Epochs, Part
from nanobot.agent.fitting import prompt_text, shorten
from nanobot.agent.headers import Timestamps, header, memory_notice
from nanobot.clock import Clock
from nanobot.messages import Message
from nanobot.providers.port import (
    Image,
    Prompt,
    PromptMessage,
    Toolset,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)
from nanobot.session.session import Session
from nanobot.tokens import IMAGE_TOKENS

SEPARATOR = "\n\n---\n\n"
CONTINUED = "[nanobot: the beginning of this turn was put away into memory to make room]"


class SystemPrompt(Protocol):
    """Where the text of the system prompt comes from."""

    def parts(self) -> Sequence[Part]:
        """Its parts, most stable first."""
        ...

    def memory_text(self) -> str | None:
        """The long-term memory as it is now, to tell what changed since; None where it cannot be
        read."""
        ...


class ContextBuilder:
    """Builds prompts. `system_of` gives the system prompt of a session: each has the memory of its
    own scope; `tools_of` gives the tools on offer there: other ones begin a new epoch. `load_image`
    gives base64 data and MIME type of a stored image, or None; `max_message_tokens` is where a
    single message is shortened in the prompt (never in storage); `most_picture_bytes` is how much
    memory the pictures of all conversations may take. `forgotten` counts how often something left
    memory for good: no prompt holds it then, nor tells that it went."""

    def __init__(
        self,
        system_of: Callable[[Session], SystemPrompt],
        tools_of: Callable[[Session], Toolset],
        clock: Clock,
        *,
        timestamps: Timestamps = "relative",
        load_image: Callable[[str], Image | None] | None = None,
        max_message_tokens: int = 30_000,
        most_picture_bytes: int = MOST_PICTURE_BYTES,
        forgotten: Callable[[], int] = lambda: 0,
    ) -> None:
        self._system_of = system_of
        self._tools_of = tools_of
        self._clock = clock
        self._timestamps = timestamps
        self._load_image = load_image
        self._max_characters = max_message_tokens * 2
        self._forgotten = forgotten
        self._epochs = Epochs(most_picture_bytes)

    def build(self, session: Session, new: Sequence[Message] = ()) -> Prompt:
        """The prompt for a turn: system, history, and the turn's own messages so far."""
        epoch = self.epoch(session)
        history = self._catch_up(epoch)
        own = [self.render(epoch, message) for message in new]
        tokens = epoch.fixed_tokens + epoch.tokens + sum(message.tokens for message in own)
        return Prompt((epoch.system, *history, *own), epoch.tools, tokens)

    def epoch(self, session: Session) -> Epoch:
        """The session's current epoch; a new one where the old no longer holds."""
        today = self._clock.now().date()
        label, model = str(session.epoch), str(session.metadata.get("model", ""))
        tools = self._tools_of(session)
        epoch = self._epochs.get(session.key)
        if (
            epoch is None
            or epoch.session is not session
            or epoch.revision != session.revision
            or epoch.label != label
            or epoch.today != today
            or epoch.tools.wire != tools.wire
            or epoch.forgotten != self._forgotten()
            or (epoch.blind and epoch.model != model)
        ):
            epoch = self._new_epoch(session, label, today, tools)
            epoch.model = model
        self._epochs.use(epoch)
        return epoch

    def news(self, session: Session) -> str:
        """What changed in memory since the conversation was told, for the newest message's header.

        The same until `told`: a turn that has to wait says it when it runs.
        """
        epoch = self.epoch(session)
        now = self._system_of(session).memory_text()
        epoch.offered = epoch.memory if now is None else now
        if epoch.memory is None or epoch.offered is None or epoch.offered == epoch.memory:
            return ""
        return memory_notice(epoch.memory, epoch.offered)

    def told(self, session: Session) -> None:
        """The news are in the conversation now."""
        epoch = self._epochs.get(session.key)
        if epoch is not None and epoch.session is session:
            epoch.memory = epoch.offered

    def render(self, epoch: Epoch, message: Message) -> PromptMessage:
        """A message in the form it is sent; the same bytes every time within an epoch."""
        text = shorten(message.content, self._max_characters)
        if message.role == "assistant":
            return assistant_message(text, message.tool_calls)
        if message.role == "tool":
            return tool_message(message.tool_call_id, text)
        lines = [message.notice, text]
        if message.from_person:
            stamp = header(message.timestamp, epoch.session.key, epoch.today, self._timestamps)
            lines.insert(0, stamp)
        return user_message("\n".join(filter(None, lines)), self._images(epoch, message))

    def left_out(self, message: Message) -> int:
        """How many characters of a message the prompt leaves out because it is too long."""
        return max(0, len(message.content) - self._max_characters)

    def fixed_tokens(self, session: Session) -> int:
        """About how many tokens the system prompt and the tools take."""
        return self.epoch(session).fixed_tokens

    def tokens(self, session: Session, coming: Sequence[Message] = ()) -> int:
        """About how many tokens the session's prompt takes now, with these messages after it."""
        epoch = self.epoch(session)
        self._catch_up(epoch)
        return epoch.fixed_tokens + epoch.tokens + sum(self._cost(epoch, m) for m in coming)

    def has_images(self, session: Session) -> bool:
        """Whether there are images in the conversation so far."""
        epoch = self.epoch(session)
        self._catch_up(epoch)
        return epoch.has_images

    def leave_out_images(self, session: Session, new: Sequence[Message]) -> bool:
        """Send no images from now on, of the conversation or the turn's `new` messages, until the
        epoch ends; False where there are none."""
        epoch = self.epoch(session)
        history = self._catch_up(epoch)
        images = (
            image for m in (*history, *(self.render(epoch, m) for m in new)) for image in m.images
        )
        if next(images, None) is None:
            return False
        epoch.blind = True
        epoch.render_anew()
        return True

    def show_images(self, session: Session) -> None:
        """Send images again."""
        epoch = self.epoch(session)
        epoch.blind = False
        epoch.render_anew()

    def hides_images(self, session: Session, new: Sequence[Message]) -> bool:
        """Whether these messages of the session have images that are left out."""
        load = self._load_image
        if load is None or not self.epoch(session).blind:
            return False
        return any(load(name) is not None for message in new for name in message.media)

    def cost(self, session: Session, message: Message) -> int:
        """About how many tokens one message of the session takes in its prompt."""
        return self._cost(self.epoch(session), message)

    def text(self, session: Session, coming: Sequence[Message] = ()) -> str:
        """All text of the prompt that `tokens` estimates, for counting."""
        return prompt_text(self.build(session, coming))

    def first_seq(self, session: Session) -> int:
        """The number of the oldest message in the prompt; where there is none, of the next one."""
        epoch = self.epoch(session)
        self._catch_up(epoch)
        return epoch.first if epoch.rendered else session.next_seq

    def _new_epoch(self, session: Session, label: str, today: date, tools: Toolset) -> Epoch:
        forgotten = self._forgotten()  # first: what goes meanwhile ends this epoch as well
        system = self._system_of(session)
        parts = tuple(system.parts())
        text = SEPARATOR.join(part.text for part in parts)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass") + tools.wire)
        memory = system.memory_text()
        message = system_message(text)
        return Epoch(
            session,
            label,
            session.revision,
            today,
            message,
            digest.hexdigest()[:16],
            tuple((part.source, len(part.text)) for part in parts if part.source),
            memory,
            memory,
            message.tokens + tools.tokens,
            tools,
            forgotten,
        )

    def _catch_up(self, epoch: Epoch) -> list[PromptMessage]:
        """Render what was added since the last time."""
        if epoch.session.next_seq == epoch.newest + 1:
            return epoch.rendered
        history = epoch.session.get_history()
        new = history[bisect.bisect_right(history, epoch.newest, key=lambda m: m.seq) :]
        if new and not epoch.rendered:
            epoch.first = new[0].seq
            if new[0].role != "user":
                epoch.add(user_message(CONTINUED))
        for message in new:
            epoch.add(self.render(epoch, message))
            epoch.newest = message.seq
        self._epochs.drop_pictures()
        return epoch.rendered

    def _cost(self, epoch: Epoch, message: Message) -> int:
        """What a message will take, without loading its images for that."""
        bare = replace(message, media=()) if message.media else message
        return self.render(epoch, bare).tokens + IMAGE_TOKENS * len(message.media)

    def _images(self, epoch: Epoch, message: Message) -> tuple[Image, ...]:
        if self._load_image is None or epoch.blind:
            return ()
        return tuple(filter(None, map(self._load_image, message.media)))
