"""What of a batch of updates the conversation supports, before anything of it is integrated. Pure.

See `memory.screening`. In addition a known fact is replaced by one fact at most, and it is over
only if the person spoke of it as over, or its day has passed. What the model finds to be over
without that waits for the person, a few lines at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.memory.cleaning import Echoes
from nanobot.memory.documents import PERSONAL
from nanobot.memory.dream.phases import Update
from nanobot.memory.guard import fact_lines, find_line, without_list_mark
from nanobot.memory.importance import without_importance
from nanobot.memory.lines import Operation
from nanobot.memory.pending import NOT_SAID
from nanobot.memory.screening import Screen
from nanobot.memory.support import Talk

MOST_UPDATES = 100
"""Updates of one answer."""

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
    work, kept = Screen(talk, facts, echoes), list[Update]()
    for update in list(updates)[:MOST_UPDATES]:
        if update.verbatim:
            kept.append(update)
            continue
        asked = len(work.asked)
        for step in _screened(work, update, is_past):
            is_quote = bool(step.new) and step.new != update.step.new
            kept.extend(_placed(replace(update, verbatim=is_quote), step, files))
        for step in work.asked[asked:]:
            line = without_importance(step.new) or f"no longer: {without_list_mark(step.old)}"
            work.note(line, "the person did not say so")
            new = f"- {without_importance(step.new)}" if step.new else ""
            waiting = replace(update, origins=(NOT_SAID,))
            kept.extend(_placed(waiting, replace(step, new=new), files))
    return Screened(kept, work.set_aside)


def _screened(
    work: Screen, update: Update, is_past: Callable[[str, str], bool]
) -> Iterator[Operation]:
    step = update.step
    new = without_importance(step.new)
    if not new and (work.talk.says_over(step.old) or is_past(update.path, step.old)):
        yield step
    elif not new:
        work.ask(step)
    elif reason := work.junk_in(new, step.old):
        work.note(new, reason)
    elif step.old:
        yield from work.screen_replacement(step, asks=True)
    else:
        yield from work.screen_new(step, is_wish=update.path == _MANNER)


def _placed(update: Update, step: Operation, files: Mapping[str, str]) -> Iterator[Update]:
    """Yield the update with this step, of the file in which the line that goes stands."""
    if not step.old or step.old == update.step.old:
        yield replace(update, step=step)
        return
    path = next((path for path, text in files.items() if find_line(step.old, text)), "")
    if path:
        yield replace(update, step=step, path=path)
    elif not update.origins:  # it was learned just now
        yield replace(update, step=replace(step, old=""))
