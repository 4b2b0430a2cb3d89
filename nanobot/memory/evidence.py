"""Checks of a model's lines and changes against the conversation (`support`). Pure.

If the conversation does not support a number or a negation of a new fact, the person's closest line
replaces it. A known fact changes only by the person's own plain words. If they named the change
less plainly, it waits for their approval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date

from msgspec.structs import replace

from nanobot.memory.guard import without_bullet, without_list_mark
from nanobot.memory.importance import without_importance
from nanobot.memory.line_changes import Operation
from nanobot.memory.model_text import Echoes, junk_reason
from nanobot.memory.statements import KnownFacts, is_part_of
from nanobot.memory.support import UNSUPPORTED, Talk
from nanobot.memory.taint import quote_line, read_quotation
from nanobot.messages import Message

MOST_ASKED, _MOST_QUOTED = 5, 5
_SHOWN = 160


class Screen:
    """Decides change by change. `asked` collects the changes that need approval, `set_aside` the
    rejected lines with the reasons. `facts` are known already, `echoes` are our own prompts."""

    def __init__(self, talk: Talk, facts: Iterable[str] = (), echoes: Echoes | None = None) -> None:
        self.talk, self.known, self._echoes = talk, KnownFacts(facts, talk.languages), echoes
        self._quoted = 0
        self._used: set[str] = set()
        self.asked: list[Operation] = []
        self.set_aside: list[str] = []

    def junk_in(self, line: str, old: str = "") -> str:
        """Return the reason to reject a line as junk, or "". A copy of an example in our prompts is
        junk unless the person stated it as a change of the line `old`."""
        if self.talk.has_own_line(without_list_mark(line)):
            return ""
        if (reason := junk_reason(line)) or (old and not self.talk.objection_to_change(old, line)):
            return reason
        is_copy = self._echoes and self._echoes.has(line) and not self.talk.is_covered(line)
        return "it copies the instructions" if is_copy else ""

    def screen_new(self, change: Operation, *, is_wish: bool = False) -> Iterator[Operation]:
        """Yield a new fact as it may be written, or nothing. For a wish about the agent's manner
        only the person's own words count, and no quotation replaces it."""
        line = without_importance(change.new)
        if self.known.has(line):
            return
        fact = self.known.find_affected(line)
        reason = self._objection(line, fact, is_wish=is_wish)
        if reason and fact and self.talk.names_change(fact, line):
            self.ask(replace(change, old=fact))
        elif reason:
            yield from self._quote_instead(change, reason, may_quote=not is_wish)
        else:
            read = self.known.read
            is_turned = bool(fact) and read(fact).negated != read(line).negated
            self.known.add(line)
            yield replace(change, old=fact) if is_turned else change

    def _objection(self, line: str, fact: str, *, is_wish: bool) -> str:
        if is_wish and (reason := self.talk.objection(line, own=True)):
            return reason
        talk = self.talk
        return talk.objection_to_change(fact, line) if fact else talk.objection(line)

    def screen_replacement(
        self, change: Operation, *, replaces: bool = True, asks: bool = False
    ) -> Iterator[Operation]:
        """Yield a change of a known fact as it may be made, or nothing. Without `replaces` a
        similar line is not meant to replace one. With `asks` the person is asked whether the old
        one is over."""
        old, new = change.old, without_importance(change.new)
        new_fact, over = replace(change, old=""), replace(change, new="")
        if reason := self.talk.objection_to_change(old, new):
            if self.talk.names_change(old, new):
                self.ask(change)
            elif self.known.find_affected(new) or self.talk.objection(new, own=True):
                yield from self._quote_instead(new_fact, reason)
            else:  # stated by the person, and changes no fact: it is a new one
                yield from self.screen_new(new_fact)
        elif new in self._used:  # it replaces one fact only
            self.ask(over)
        elif is_part_of(old, new) or (replaces and self.talk.ends(old, new)):
            self.known.add(new)
            self._used.add(new)
            yield change
        else:
            yield from self.screen_new(new_fact)
            if asks:
                self.ask(over)

    def ask(self, change: Operation) -> None:
        """Ask the person about a change, unless there are too many questions already."""
        if len(self.asked) < MOST_ASKED and change not in self.asked:
            self.asked.append(change)

    def note(self, line: str, reason: str) -> None:
        """Note why a line was rejected."""
        self.set_aside.append(f"{shorten_line(line)}: {reason}")

    def _quote_instead(
        self, change: Operation, reason: str, *, may_quote: bool = True
    ) -> Iterator[Operation]:
        """Yield the person's own line in place of an unsupported fact."""
        line = without_importance(change.new)
        self.note(line, reason)
        may_quote = may_quote and reason != UNSUPPORTED and self._quoted < _MOST_QUOTED
        quote = self.talk.quote(line) if may_quote else None
        text = quote_line(*quote) if quote else ""
        if quote and text and not self.known.has(quote[0]) and not self.known.has(text):
            self._quoted += 1
            self.known.add(text)
            yield replace(change, old="", new=f"- {without_bullet(text)}")


def find_contradicted(line: str, facts: Mapping[str, date], said_on: date) -> list[str]:
    """Return the `facts` that the person's own `line` surely contradicts. `facts` have the days on
    which they were written: a later one than `said_on` stays, and so does the line itself."""
    said = without_bullet(read_quotation(line)[0])
    talk = Talk([Message("user", said)])
    known = (fact for fact, written in facts.items() if written <= said_on)
    texts = ((fact, read_quotation(fact)[0]) for fact in known)
    return [fact for fact, text in texts if without_bullet(text) != said and talk.contradicts(text)]


def shorten_line(line: str) -> str:
    """Return a line without its list mark, shortened."""
    text = without_list_mark(line)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
