"""`nanobot approvals`: what the owner has allowed for longer than one call."""

from __future__ import annotations

from nanobot.cli.command import Commands, Data, field, fields, minute, records, table, words


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
        (field(one, "id"), minute(one, "given_at"), *fields(one, "given_by", "lasts", "subject"))
        for one in records(data, "approvals")
    )
    shown = table(rows, "id", "since", "by", "lasts", "what")
    return shown or "Nothing is allowed for longer than one call.\n"
