"""What the commands print for people: aligned tables and short paragraphs from JSON-able data.

Functions from data to text, which only ask how wide the terminal is. The data comes from the
gateway or the files, so every value passes `one_line` or `clean` before it is shown, and a field
that is missing shows as nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from nanobot_cli.text import clean, columns, one_line, wrapped

if TYPE_CHECKING:
    from typing import TextIO

Data = Mapping[str, object]

_NARROWEST_CELL = 24
_BENEATH = "    "


def queue_text(queue: Data) -> str:
    """What waits or failed, in and out."""
    inbox, outbox = records(queue, "inbox"), records(queue, "outbox")
    if not inbox and not outbox:
        return "Nothing waits and nothing failed.\n"
    blocks = []
    if inbox:
        rows = [(*_entry(e), field(e, "session"), *_words(e)) for e in inbox]
        blocks.append("inbox\n" + indent(table([("id", "state", "tries", "session"), *rows], 2)))
    if outbox:
        rows = [
            (*_entry(e), f"{field(e, 'channel')}:{field(e, 'chat_id')}", *_words(e)) for e in outbox
        ]
        blocks.append("outbox\n" + indent(table([("id", "state", "tries", "to"), *rows], 2)))
    if any(field(row, "state") in ("failed", "dead") for row in (*inbox, *outbox)):
        blocks.append(
            fitted("`nanobot queue retry ID` and `nanobot queue drop ID` mend what failed.\n")
        )
    return "\n".join(blocks)


def turn_text(turn: Data) -> str:
    """Everything worth knowing about one turn, the prompt last because it is long."""
    tokens = (
        f"{number(turn, 'prompt_tokens'):,} prompt ({number(turn, 'cached_tokens'):,} cached), "
        f"{number(turn, 'completion_tokens'):,} completion"
    )
    blocks = [
        table(
            [
                ("turn", field(turn, "id")),
                ("session", field(turn, "session")),
                ("state", field(turn, "state")),
                ("started", field(turn, "started_at")),
                ("took", f"{number(turn, 'milliseconds'):,} ms"),
                ("model", field(turn, "model")),
                ("tokens", tokens + _cost(turn)),
            ]
        ),
        _section("memory used", _memory(records(turn, "memory"))),
        _section("tools", "".join(_tool(tool) for tool in records(turn, "tools"))),
        _section("system prompt", indent(clean(text(turn, "system_prompt")))),
        _section("messages", "".join(message_text(m) for m in records(turn, "messages"))),
        _section("new messages", "".join(message_text(m) for m in records(turn, "new_messages"))),
    ]
    return "\n".join(blocks)


def message_text(message: Data) -> str:
    """One message of a conversation: a line that says whose it is, then what it says."""
    parts = [f"#{number(message, 'seq')}" if number(message, "seq") else ""]
    parts += [field(message, "time"), field(message, "role"), field(message, "name")]
    if (turn := field(message, "turn_id")) and field(message, "role") == "user":
        parts.append(f"(turn {turn})")
    return f"{' '.join(part for part in parts if part)}\n{indent(clean(text(message, 'content')))}"


def table(rows: Iterable[Sequence[str]], left: int = 0) -> str:
    """Rows with their columns aligned; the last column of each is as long as it is. On a terminal,
    where `left` columns are taken already, its words go on beneath where they began, or beneath
    the row where that is too narrow."""
    rows = [tuple(row) for row in rows]
    count = max(map(len, rows), default=0)
    widths = [
        max((columns(row[at]) for row in rows if len(row) > at + 1), default=0)
        for at in range(count)
    ]
    room = get_terminal_size().columns - left if sys.stdout.isatty() else sys.maxsize
    return "".join(f"{_laid_out(row, widths, room)}\n" for row in rows)


def fitted(shown: str, to: TextIO | None = None) -> str:
    """Text in lines that a terminal holds (`to`: standard output by default); elsewhere as it is,
    because programs and files want whole lines."""
    is_terminal = (to or sys.stdout).isatty()
    return wrapped(shown, get_terminal_size().columns) if is_terminal else shown


def size(count: int) -> str:
    """So many bytes, as `12.3 kB` or `1,234.5 MB`."""
    return f"{count / 1_000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:,.1f} MB"


def counts(data: Data, **labels: str) -> str:
    """`2 waiting, 1 failed`; `empty` where all are 0."""
    found = [f"{number(data, key)} {label}" for key, label in labels.items() if number(data, key)]
    return ", ".join(found) or "empty"


def indent(block: str) -> str:
    """The block moved two columns to the right."""
    return "".join(f"  {line}".rstrip() + "\n" for line in block.splitlines())


def field(data: Data, key: str, width: int = 200) -> str:
    """A value as one line; empty where it is missing."""
    value = data.get(key)
    return "" if value is None else one_line(str(value), width)


def text(data: Data, key: str) -> str:
    """A text as it is, several lines perhaps."""
    value = data.get(key)
    return "" if value is None else str(value)


def number(data: Data, key: str) -> int:
    """A count; 0 where it is missing."""
    value = data.get(key)
    return int(value) if isinstance(value, int | float) else 0


def record(data: Data, key: str) -> Data:
    """An object in the data; empty where it is missing."""
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def records(data: Data, key: str) -> list[Data]:
    """A list of objects in the data; empty where it is missing."""
    value = data.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _laid_out(row: Sequence[str], widths: Sequence[int], room: int) -> str:
    *head, last = row or ("",)
    lines, line = list[str](), ""
    for cell, width in zip(head, widths, strict=False):
        if line.strip() and columns(line) + width > room:
            lines.append(line.rstrip())
            line = _BENEATH
        line += f"{cell}{' ' * (width - columns(cell))}  "
    begins = columns(line)
    longest = max(map(columns, last.split()), default=0)
    least = min(columns(last), max(longest, _NARROWEST_CELL), room - len(_BENEATH))
    if line.strip() and room - begins < least:
        lines.append(line.rstrip())
        line, begins = _BENEATH, len(_BENEATH)
    if begins + columns(last) > room:
        last = wrapped(last, room - begins).replace("\n", "\n" + " " * begins)
    return "\n".join([*lines, f"{line}{last}".rstrip()])


def _entry(entry: Data) -> tuple[str, str, str]:
    return field(entry, "id"), field(entry, "state"), field(entry, "attempts")


def _words(entry: Data) -> tuple[str]:
    reason = field(entry, "reason", 100)
    return (f"{field(entry, 'text', 60)}{f'  ({reason})' if reason else ''}",)


def _section(title: str, block: str) -> str:
    return f"{title}\n" + (block if block.strip() else "  none\n")


def _memory(sources: Sequence[Data]) -> str:
    return indent(
        table([(field(s, "path"), f"{number(s, 'characters'):,} characters") for s in sources], 2)
    )


def _cost(turn: Data) -> str:
    cost = turn.get("cost")
    return f"; cost {cost:.4f}" if isinstance(cost, float) else ""


def _tool(tool: Data) -> str:
    took = f"{number(tool, 'milliseconds'):,} ms"
    head = f"  {field(tool, 'name')} {field(tool, 'arguments', 100)} ({took})\n"
    return head + indent(indent(one_line(text(tool, "result"), 300)))
