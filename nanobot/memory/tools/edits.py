"""What a wish to change a long-term file comes to: line operations, and what waits. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nanobot.errors import ToolError
from nanobot.memory.grounds.grounds import Grounds
from nanobot.memory.store.guard import bare, lost_facts
from nanobot.memory.text.lines import Operation, most_similar

_NEAR = 0.3
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Wish:
    """Lines to add under `section`, to take out, and to reword (old, new)."""

    add: Sequence[str] = ()
    section: str = ""
    remove: Sequence[str] = ()
    reword: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Edits:
    """`operations` may be made, and the `retired` lines then go to retired.md. `held` wait for the
    person, `refused` lines stay, because only they may ask for that."""

    operations: tuple[Operation, ...] = ()
    retired: tuple[str, ...] = ()
    held: tuple[Operation, ...] = ()
    refused: tuple[str, ...] = ()


def planned(file: str, text: str, wish: Wish, grounds: Grounds) -> Edits:
    """What `wish` changes in `text`, which the model knows as `file`.

    Raises `ToolError` for a line that does not stand there, and names the one that comes nearest.
    """
    removals = [Operation(old=_standing(line, text, file)) for line in wish.remove]
    rewordings = [_rewording(old, new, text, file) for old, new in wish.reword]
    section = _section(wish.section, text, grounds)
    additions = [Operation(new=line, section=section) for line in _bullets(wish.add, text)]
    refused = tuple(step.old for step in removals if not grounds.mentions(step.old))
    removed = [step for step in removals if step.old not in refused]
    held = [step for step in rewordings if not grounds.supports_change(step.old, step.new)]
    held += [step for step in additions if not grounds.supports(step.new)]
    gained = [step for step in (*rewordings, *additions) if step not in held]
    replaced = [step.old for step in gained if step.old and lost_facts(step.old, step.new)]
    retired = (*(step.old for step in removed), *replaced)
    return Edits((*removed, *gained), retired, tuple(held), refused)


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


def report_of(file: str, edits: Edits, numbers: Sequence[int]) -> str:
    """What the model is told. `numbers` are those under which the held lines wait."""
    parts = [f"{summary_of(file, edits)}."]
    if edits.held:
        lines = "\n".join(step.new[:_SHOWN] for step in edits.held)
        accept = " ".join(map(str, numbers))
        parts.append(
            "Held back, because foreign content is in this conversation and the person did not say "
            f"this themselves:\n{lines}\nTell them: /memory pending shows what waits, "
            f"/memory accept {accept} makes it a memory."
        )
    if edits.refused:
        lines = "\n".join(line[:_SHOWN] for line in edits.refused)
        parts.append(
            "Not taken out, because the person did not speak of it; ask them, or let them use "
            f"/forget:\n{lines}"
        )
    return "\n".join(parts)


def _standing(wanted: str, text: str, file: str) -> str:
    """The line of `text` that is `wanted`, whatever its mark, case and spaces."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    same = [line for line in lines if _plain(line) == _plain(wanted)]
    exact = [line for line in same if line.strip() == wanted.strip()]
    if same:
        return (exact or same)[0]
    near = most_similar(wanted, lines, _NEAR)
    raise ToolError(
        f"no line of {file} reads {wanted.strip()[:_SHOWN]!r}; nothing was changed",
        hint=f"The nearest is: {near.strip()[:_SHOWN]}" if near else "Read the file again.",
    )


def _rewording(old: str, new: str, text: str, file: str) -> Operation:
    standing = _standing(old, text, file)
    fact = bare(" ".join(new.split()))
    if not fact:
        raise ToolError(f"the new text for {old.strip()[:_SHOWN]!r} is empty; use remove")
    mark = standing[: len(standing) - len(bare(standing))]
    return Operation(old=standing, new=mark + fact)


def _bullets(lines: Sequence[str], text: str) -> list[str]:
    """The lines to add as list items, without those that stand there."""
    known = {_plain(line) for line in text.splitlines()}
    pieces = (bare(piece) for line in lines for piece in line.splitlines())
    new = dict.fromkeys(f"- {piece}" for piece in pieces if piece and _plain(piece) not in known)
    return list(new)


def _section(wanted: str, text: str, grounds: Grounds) -> str:
    """The heading that is meant; none where a foreign text alone could have made it up."""
    name = " ".join(wanted.split()).lstrip("# ")
    if not name:
        return ""
    headings = (line.rstrip() for line in text.splitlines() if line.startswith("#"))
    for heading in headings:
        if heading.lstrip("# ").casefold() == name.casefold():
            return heading
    return f"## {name}" if grounds.supports(name) else ""


def _plain(line: str) -> str:
    return " ".join(bare(line).casefold().split()).rstrip(".。")
