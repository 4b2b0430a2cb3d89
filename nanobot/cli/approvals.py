"""`nanobot approvals`: what the owner has allowed for longer than one call."""

from __future__ import annotations

from nanobot.cli.answer import Data
from nanobot.cli.command import Commands, table, words


def add_approvals(commands: Commands) -> None:
    """`nanobot approvals …`."""
    what = commands.group(
        "approvals",
        "show and revoke standing approvals",
        "What you answered with `always`, or for a chat today, when you were asked about a call.",
    )
    summary = "list what is allowed for longer than one call"
    what.operation("list", summary, "approvals.list", _list_text)
    revoke = what.operation("revoke", "take one back", "approvals.revoke")
    revoke.argument("id", "ID", "as `approvals list` shows it", type=words)


def _list_text(data: Data) -> str:
    rows = (
        (one.field("id"), one.minute("given_at"), *one.fields("given_by", "lasts", "subject"))
        for one in data.records("approvals")
    )
    shown = table(rows, "id", "since", "by", "lasts", "what")
    return shown or "Nothing is allowed for longer than one call.\n"
