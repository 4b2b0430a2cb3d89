"""What may become a memory: what its person said, or what nothing foreign could have caused. Pure.

While a prompt holds only the person's own words, the model's and nanobot's, any line may be
remembered. Once it holds foreign text (a web page, a file, a forwarded message, another person in a
group) a line must be the person's by its words, however convincing the model finds the page:

- every address, path, handle, identifier and number in it was written by the person;
- a standing order ("always …", "from now on …") only where the person gave one, and a denial only
  where they denied something;
- of its content words at least one, and three in ten, are the person's, and those that only the
  foreign text holds are at most half as many;
- words, data and numbers are nearly all of it: four characters that belong to none of them (single
  letters, small numbers, pictures, what cannot be seen) are let through, or one for four others.

That is a measure, not a proof. It errs on the side of asking the person, and what passes can carry
nothing out: no address, no number and no order that the person did not write. What the assistant
said counts for neither side, because it repeats what it read; where that is no longer among the
messages, what it said is foreign text itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nanobot.memory.grounds.traces import Tokens, known
from nanobot.memory.text.unconfirmed import NOTE, says_unconfirmed
from nanobot.messages import ATTACHED, Message

_OWN = 0.3
_FOREIGN = 0.5
_NANOBOT = "nanobot"
_ALIEN = "\0foreign"


@dataclass(frozen=True, slots=True)
class Grounds:
    """The tokens of what the person said (`trusted`) and of foreign text (`untrusted`)."""

    trusted: frozenset[str] = frozenset()
    untrusted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Grounds:
        """The grounds that these messages, a prompt or the evidence behind a summary, give."""
        trusted: set[str] = set()
        untrusted: set[str] = set()
        for text, is_own in dict.fromkeys(_told(tuple(messages))):
            if is_own:
                trusted |= known(text)
            else:
                untrusted |= known(text)
                untrusted.add(_ALIEN)  # an image or an empty page taints as well
        return cls(frozenset(trusted), frozenset(untrusted))

    @property
    def is_tainted(self) -> bool:
        """Whether there is any foreign text."""
        return bool(self.untrusted)

    def supports(self, line: str) -> bool:
        """Whether `line` may be remembered without asking the person."""
        if not self.is_tainted:
            return True
        tokens = Tokens.of(line)
        return tokens.is_blank or (bool(tokens.words) and self._carries(tokens))

    def supports_change(self, old: str, new: str) -> bool:
        """Whether `old` may be reworded to `new`: what differs must be the person's."""
        if not self.is_tainted:
            return True
        changed = Tokens.of(new).since(Tokens.of(old))
        if not changed.words and (changed.loose or changed.dates):
            return False
        return self._carries(changed)

    def mentions(self, line: str) -> bool:
        """Whether the person speaks of what `line` says, so that it may be taken out.

        Its numbers and addresses need not be theirs: "forget Ana's number" does not repeat it.
        """
        if not self.is_tainted:
            return True
        tokens = Tokens.of(line)
        return tokens.is_blank or (bool(tokens.words) and self._owns(tokens.words))

    def plus(self, other: Grounds) -> Grounds:
        """The grounds of both."""
        return Grounds(self.trusted | other.trusted, self.untrusted | other.untrusted)

    def _carries(self, tokens: Tokens) -> bool:
        return tokens.is_accounted and tokens.stated_in(self.trusted) and self._owns(tokens.words)

    def _owns(self, words: frozenset[str]) -> bool:
        if not words:
            return True
        own = len(words & self.trusted)
        foreign = len((words & self.untrusted) - self.trusted)
        return own >= max(1.0, _OWN * len(words)) and foreign <= _FOREIGN * own


def holds_foreign(messages: Iterable[Message]) -> bool:
    """Whether `Grounds.of` these messages would be tainted."""
    return not all(is_own for _, is_own in _told(tuple(messages)))


def is_foreign(message: Message) -> bool:
    """Whether a message is the text of others than its person, the model and nanobot."""
    return message.role != "assistant" and message.origin not in {"", _NANOBOT, ATTACHED}


def origins_of(messages: Iterable[Message]) -> tuple[str, ...]:
    """Where the foreign text among `messages`, or behind them, came from; each source once."""
    marked = (message for message in messages if message.origin or message.notice)
    return tuple(dict.fromkeys(origin for message in marked for origin in _origins(message)))


def _origins(message: Message) -> Iterator[str]:
    joined = message.role == "assistant"
    marks = message.origin.split(",") if joined else [message.origin]
    yield from (mark for mark in marks if mark not in {"", _NANOBOT})
    if says_unconfirmed(message.notice):
        yield NOTE


def _told(messages: Sequence[Message]) -> Iterator[tuple[str, bool]]:
    """Each text among `messages` that counts, and whether it is the person's own."""
    sources = {message.origin for message in messages if message.role != "assistant"}
    for message in messages:
        if is_foreign(message):
            yield message.content, False
        elif message.role == "user":
            yield message.own_words, True
        elif any(mark not in sources for mark in _origins(message)):
            yield message.content, False  # it may repeat what is no longer here
        if message.origin == ATTACHED and message.role == "user":
            yield message.attached, False
        if says_unconfirmed(message.notice):
            yield message.notice, False
