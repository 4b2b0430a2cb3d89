"""What the commands print for people: aligned tables and short paragraphs from JSON-able data.

Pure functions from data to text. The data comes from the gateway or the files, so every value
passes `one_line` or `clean` before it is shown, and a field that is missing shows as nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nanobot_cli.plain import clean, one_line

Data = Mapping[str, object]


def queue_text(queue: Data) -> str:
    """What waits or failed, in and out."""
    inbox, outbox = records(queue, "inbox"), records(queue, "outbox")
    if not inbox and not outbox:
        return "Nothing waits and nothing failed.\n"
    blocks = []
    if inbox:
        rows = [(*_entry(e), field(e, "session"), *_words(e)) for e in inbox]
        blocks.append("inbox\n" + indent(table([("id", "state", "tries", "session"), *rows])))
    if outbox:
        rows = [
            (*_entry(e), f"{field(e, 'channel')}:{field(e, 'chat_id')}", *_words(e)) for e in outbox
        ]
        blocks.append("outbox\n" + indent(table([("id", "state", "tries", "to"), *rows])))
    if any(field(row, "state") in ("failed", "dead") for row in (*inbox, *outbox)):
        blocks.append("`nanobot queue retry ID` and `nanobot queue drop ID` mend what failed.\n")
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


def table(rows: Iterable[Sequence[str]]) -> str:
    """Rows with their columns aligned; the last column of each is as long as it is."""
    rows = [tuple(row) for row in rows]
    count = max(map(len, rows), default=0)
    widths = [
        max((len(row[at]) for row in rows if len(row) > at + 1), default=0) for at in range(count)
    ]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines)


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


def _entry(entry: Data) -> tuple[str, str, str]:
    return field(entry, "id"), field(entry, "state"), field(entry, "attempts")


def _words(entry: Data) -> tuple[str]:
    reason = field(entry, "reason", 100)
    return (f"{field(entry, 'text', 60)}{f'  ({reason})' if reason else ''}",)


def _section(title: str, block: str) -> str:
    return f"{title}\n" + (block if block.strip() else "  none\n")


def _memory(sources: Sequence[Data]) -> str:
    return indent(
        table([(field(s, "path"), f"{number(s, 'characters'):,} characters") for s in sources])
    )


def _cost(turn: Data) -> str:
    cost = turn.get("cost")
    return f"; cost {cost:.4f}" if isinstance(cost, float) else ""


def _tool(tool: Data) -> str:
    took = f"{number(tool, 'milliseconds'):,} ms"
    head = f"  {field(tool, 'name')} {field(tool, 'arguments', 100)} ({took})\n"
    return head + indent(indent(one_line(text(tool, "result"), 300)))
