"""`nanobot approvals`: the questions that wait for the owner, and the standing approvals."""

from __future__ import annotations

from collections.abc import Iterator

from nanobot.cli.answer import Data
from nanobot.cli.command import Commands, indent, table, words

_NONE = "No questions are pending, and nothing is allowed for longer than one call.\n"


def add_approvals(commands: Commands) -> None:
    """`nanobot approvals …`."""
    what = commands.group(
        "approvals",
        "list pending questions, show and revoke standing approvals",
        "Pending questions, and your answers `always` and `today` (default: list).",
    )
    summary = "list pending questions and standing approvals"
    what.operation("list", summary, "approvals.list", _list_text, default=True)
    revoke = what.operation("revoke", "take one back", "approvals.revoke")
    revoke.argument("id", "ID", "as `approvals list` shows it", type=words)


def _list_text(data: Data) -> str:
    blocks = ["\n".join("".join(_question(one)) for one in data.records("waiting"))]
    rows = (
        (one.field("id"), one.minute("given_at"), *one.fields("given_by", "lasts", "subject"))
        for one in data.records("approvals")
    )
    blocks.append(table(rows, "id", "since", "by", "lasts", "what"))
    return "\n".join(filter(None, blocks)) or _NONE


def _question(one: Data) -> Iterator[str]:
    """Yield the lines of a pending question, and how to answer it."""
    code, place = one.fields("code", "asked_in")
    minutes = -(-one.number("seconds_left") // 60)
    yield f"May I {one.field('what')}?\n"
    yield indent(one.text("details"))
    yield f"  {one.field('because')}\n"
    yield (
        f"  /approve {code} or /deny {code} in {place}, or on the page; {minutes} min left"
        f" (for {one.field('session')})\n"
    )
