"""What a wish to change a long-term file comes to: line operations, and what waits. Pure.

Once foreign text was read, what the model words itself waits for the person, whether it adds,
rewords or removes. Lines of the person's own, which code copied whole, go in at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nanobot.errors import CallRefused
from nanobot.memory.store.guard import bare, fact_lines, lost_facts
from nanobot.memory.text.lines import Operation, most_similar

_NEAR = 0.3
_SHOWN = 300
_LONGEST = 1_000


@dataclass(frozen=True, slots=True)
class Wish:
    """Lines to add under `section`, to take out, and to reword (old, new); `quoted` are lines of
    the person's to add there."""

    add: Sequence[str] = ()
    section: str = ""
    remove: Sequence[str] = ()
    reword: Sequence[tuple[str, str]] = ()
    quoted: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Edits:
    """`operations` may be made, and the `retired` lines then go to retired.md. `held` wait for the
    person."""

    operations: tuple[Operation, ...] = ()
    retired: tuple[str, ...] = ()
    held: tuple[Operation, ...] = ()


def planned(file: str, text: str, wish: Wish, *, tainted: bool) -> Edits:
    """What `wish` changes in `text`, which the model knows as `file`.

    Raises `ToolError` for a line that does not stand there, and names the one that comes nearest.
    """
    removals = [Operation(old=_standing(line, text, file)) for line in wish.remove]
    rewordings = [_rewording(old, new, text, file) for old, new in wish.reword]
    section = _section(wish.section, text, new=not tainted)
    additions = [Operation(new=line, section=section) for line in _bullets(wish.add, text)]
    quoted = [Operation(new=line, section=section) for line in _bullets(wish.quoted, text)]
    if tainted:
        # What is no fact, such as a placeholder, claims nothing.
        idle = [step for step in removals if not fact_lines(step.old)]
        held = [step for step in removals if step not in idle]
        held += (*rewordings, *additions)
        if any(len(step.new) > _LONGEST for step in held):
            raise CallRefused(f"a fact may have {_LONGEST:,} characters; the person has to read it")
        return Edits((*idle, *quoted), held=tuple(held))
    replaced = [step.old for step in rewordings if lost_facts(step.old, step.new)]
    retired = (*(step.old for step in removals), *replaced)
    return Edits((*removals, *rewordings, *additions, *quoted), retired)


def summary_of(file: str, edits: Edits) -> str:
    """The operations in a few words: `MEMORY.md: 2 added, 1 retired`."""
    steps = edits.operations
    counts = {
        "added": sum(not step.old for step in steps),
        "reworded": sum(bool(step.old and step.new) for step in steps),
        "retired": sum(not step.new for step in steps),
    }
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"{file}: {told or 'nothing to change'}"


def report_of(file: str, edits: Edits) -> str:
    """What the model is told."""
    if not edits.held:
        return f"{summary_of(file, edits)}."
    lines = "\n".join((step.new or f"without: {step.old}")[:_SHOWN] for step in edits.held)
    return (
        f"{summary_of(file, edits)}.\nThis waits for the person, since text from elsewhere is in "
        "this conversation. They are shown it and can accept it at a touch; do not repeat it:\n"
        f"{lines}\nA line that they wrote goes in at once: give its first words as `quote`."
    )


def _standing(wanted: str, text: str, file: str) -> str:
    """The line of `text` that is `wanted`, whatever its mark, case and spaces."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    same = [line for line in lines if _plain(line) == _plain(wanted)]
    exact = [line for line in same if line.strip() == wanted.strip()]
    if same:
        return (exact or same)[0]
    near = most_similar(wanted, lines, _NEAR)
    raise CallRefused(
        f"no line of {file} reads {wanted.strip()[:_SHOWN]!r}; nothing was changed",
        hint=f"The nearest is: {near.strip()[:_SHOWN]}" if near else "Read the file again.",
    )


def _rewording(old: str, new: str, text: str, file: str) -> Operation:
    standing = _standing(old, text, file)
    fact = bare(" ".join(new.split()))
    if not fact:
        raise CallRefused(f"the new text for {old.strip()[:_SHOWN]!r} is empty; use remove")
    mark = standing[: len(standing) - len(bare(standing))]
    return Operation(old=standing, new=mark + fact)


def _bullets(lines: Sequence[str], text: str) -> list[str]:
    """The lines to add as list items, without those that stand there."""
    known = {_plain(line) for line in text.splitlines()}
    pieces = (bare(piece) for line in lines for piece in line.splitlines())
    new = dict.fromkeys(f"- {piece}" for piece in pieces if piece and _plain(piece) not in known)
    return list(new)


def _section(wanted: str, text: str, *, new: bool) -> str:
    """The heading that is meant; none where the text has no such heading and may get no `new`
    one."""
    name = " ".join(wanted.split()).lstrip("# ")
    if not name:
        return ""
    headings = (line.rstrip() for line in text.splitlines() if line.startswith("#"))
    for heading in headings:
        if heading.lstrip("# ").casefold() == name.casefold():
            return heading
    return f"## {name}" if new else ""


def _plain(line: str) -> str:
    return " ".join(bare(line).casefold().split()).rstrip(".。")
