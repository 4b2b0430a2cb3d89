"""What of a batch of updates the conversation supports, before anything of it is integrated. Pure.

A new fact with a number or a negation that was not said gives way to the line of the person's that
says most of it. A known fact is replaced only if the person said so, and by one fact at most; it is
over only if they spoke of it as over, or its day has passed. What the model finds to be over
without that waits for the person, a few lines at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.memory.cleaning import Echoes, junk_reason
from nanobot.memory.documents import PERSONAL
from nanobot.memory.dream.phases import Update
from nanobot.memory.guard import fact_lines, find_line, without_list_mark
from nanobot.memory.importance import without_importance
from nanobot.memory.pending import NOT_SAID
from nanobot.memory.support import UNSAID, Known, Talk, is_part_of
from nanobot.memory.taint import quoted_line

MOST_UPDATES = 100
"""Updates of one answer."""
_MOST_HELD, _MOST_QUOTED = 5, 5
_SHOWN = 160

_MANNER = PERSONAL[1]


class Screened(Struct):
    """`kept` go on, some to wait for the person; `set_aside` says what does not, and why."""

    kept: list[Update] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)


def screen(
    updates: Iterable[Update],
    talk: Talk,
    files: Mapping[str, str],
    echoes: Echoes,
    is_past: Callable[[str, str], bool],
) -> Screened:
    """Decide update by update. `is_past` says of a line, by its path and text, whether the day
    that it is about has passed since it was written."""
    facts = (fact for text in files.values() for fact in fact_lines(text))
    work = _Screen(talk, Known(facts, talk.languages), files, echoes, is_past)
    found = Screened()
    for update in list(updates)[:MOST_UPDATES]:
        if update.verbatim or update.origins:
            found.kept.append(update)
        else:
            found.kept += work.screened(update)
    found.set_aside = work.set_aside
    return found


class _Screen:
    def __init__(
        self,
        talk: Talk,
        known: Known,
        files: Mapping[str, str],
        echoes: Echoes,
        is_past: Callable[[str, str], bool],
    ) -> None:
        self._talk, self._known, self._files = talk, known, files
        self._echoes, self._is_past = echoes, is_past
        self._quoted = self._held = 0
        self._used: set[str] = set()
        self.set_aside: list[str] = []

    def screened(self, update: Update) -> Iterator[Update]:
        """What becomes of an update."""
        old, new = update.step.old, without_importance(update.step.new)
        if not new:
            yield from self._over(update)
        elif reason := self._junk(old, new):
            self._note(new, reason)
        elif old:
            yield from self._replaced(update, old, new)
        else:
            yield from self._added(update, new)

    def _junk(self, old: str, line: str) -> str:
        if self._talk.has_own_line(line):
            return ""
        reason = junk_reason(line)
        if reason or (old and not self._talk.objection_to_change(old, line)):
            return reason
        is_copy = self._echoes.has(line) and not self._talk.is_told(line)
        return "it copies the instructions" if is_copy else ""

    def _over(self, update: Update) -> Iterator[Update]:
        old = update.step.old
        if self._talk.says_over(old) or self._is_past(update.path, old):
            yield update
        else:
            yield from self._ask(update, old)

    def _replaced(self, update: Update, old: str, new: str) -> Iterator[Update]:
        reason = self._talk.objection_to_change(old, new)
        if reason and self._talk.names_change(old, new):
            yield from self._ask(update, old, new)
        elif reason:
            yield from self._instead(update, new, reason)
        elif new in self._used:
            yield from self._ask(update, old)
        elif self._talk.ends(old, new) or is_part_of(old, new):
            self._used.add(new)
            self._known.add(new)
            yield update
        else:
            yield from self._added(replace(update, step=replace(update.step, old="")), new)
            yield from self._ask(update, old)
        self._used.add(new)

    def _added(self, update: Update, new: str) -> Iterator[Update]:
        if self._known.has(new):
            return
        fact = self._known.touched_by(new)
        reason = self._talk.objection(new, own=update.path == _MANNER)
        if fact and not reason:
            reason = self._talk.objection_to_change(fact, new)
        path = next((path for path, text in self._files.items() if find_line(fact, text)), "")
        if reason and path and self._talk.names_change(fact, new):
            yield from self._ask(replace(update, path=path), fact, new)
            return
        if reason:
            yield from self._instead(update, new, reason)
            return
        self._known.add(new)
        if fact and path and self._known.is_turned(fact, new):
            yield replace(update, path=path, step=replace(update.step, old=fact))
        else:
            yield update

    def _instead(self, update: Update, new: str, reason: str) -> Iterator[Update]:
        """In the place of a fact that was not said, the line that the person wrote about it."""
        self._note(new, reason)
        quotable = reason != UNSAID and update.path != _MANNER and self._quoted < _MOST_QUOTED
        quote = self._talk.quote(new) if quotable else None
        text = quoted_line(*quote) if quote else ""
        if quote and text and not self._known.has(quote[0]):
            self._quoted += 1
            self._known.add(text)
            step = replace(update.step, old="", new=f"- {text}")
            yield replace(update, step=step, verbatim=True)

    def _ask(self, update: Update, old: str, new: str = "") -> Iterator[Update]:
        """Let the person say whether a fact is over, or is now another."""
        self._note(new or f"no longer: {without_list_mark(old)}", "the person did not say so")
        if self._held < _MOST_HELD:
            self._held += 1
            step = replace(update.step, old=old, new=f"- {new}" if new else "")
            yield replace(update, step=step, origins=(NOT_SAID,), verbatim=False)

    def _note(self, line: str, reason: str) -> None:
        shown = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
        self.set_aside.append(f"{shown}: {reason}")
