"""`nanobot approvals`, `cron` and `queue`: commands that are one operation of the gateway each."""

from __future__ import annotations

from collections.abc import Iterator

from nanobot.cli.client import Data
from nanobot.cli.command import Parser, indent, table, words
from nanobot.text import capitalize
from nanobot_cli.text import one_line

_NONE = "No pending questions and no standing approvals.\n"


def add_approvals(approvals: Parser) -> None:
    what = approvals.group(
        "List pending questions, and list or revoke your `always` and `today` answers "
        "(default: list).",
    )
    summary = "list pending questions and standing approvals"
    what.operation("list", summary, "approvals.list", format_approvals, default=True)
    revoke = what.operation("revoke", "revoke a standing approval", "approvals.revoke")
    revoke.argument("id", "ID", "the approval's id in `approvals list`", type=words)


def format_approvals(data: Data) -> str:
    blocks = ["\n".join("".join(_question_lines(one)) for one in data.records("waiting"))]
    rows = (
        (one.field("id"), one.minute("given_at"), *one.fields("given_by", "lasts", "subject"))
        for one in data.records("approvals")
    )
    blocks.append(table(rows, "id", "since", "by", "lasts", "what"))
    return "\n".join(filter(None, blocks)) or _NONE


def _question_lines(one: Data) -> Iterator[str]:
    """Yield the lines of a pending question and the ways to answer it."""
    code, place = one.fields("code", "asked_in")
    minutes = -(-one.number("seconds_left") // 60)
    yield f"{capitalize(one.field('what'))}?\n"
    yield indent(one.text("details"))
    yield f"  {one.field('because')}\n"
    yield (
        f"  Within {minutes} min, send /approve {code} or /deny {code} in {place}, or answer on "
        f"the web page (conversation: {one.field('session')})\n"
    )


_CHANGES = (
    ("remove", "remove a job"),
    ("run", "run a job now, in addition to its scheduled runs"),
    ("pause", "pause a job"),
    ("resume", "resume a paused job"),
)

_SCHEDULES = (
    "'every day at 8', 'weekdays at 7:30', 'tomorrow 9:00', 'in 20 minutes', 'every 2h', or a cron"
    " expression ('0 8 * * 1-5')"
)
_CHAT = "the chat to send to, from `sessions list` (default: the chat that the owner used last)"


def add_cron(cron: Parser) -> None:
    what = cron.group()
    what.operation("list", "list reminders and tasks", "cron.list", format_jobs)
    new = what.operation("add", "add a reminder, or a task for the agent", "cron.add")
    new.argument("schedule", "SCHEDULE", _SCHEDULES, type=words)
    new.argument("message", "MESSAGE", "the text of the reminder or the task", type=words)
    new.flag("--task", "have the agent perform MESSAGE as a task, and send its answer")
    new.option("--name", "NAME", "a name for the job")
    new.option("--chat", "CHANNEL:ID", _CHAT)
    new.option("--zone", "ZONE", "the schedule's time zone (default: agent.timezone)")
    new.option(
        "--model",
        "NAME",
        "the model for the task: one of `models` in config.yaml (default: `use.jobs`)",
    )
    for name, summary in _CHANGES:
        change = what.operation(name, summary, f"cron.{name}")
        change.argument("id", "ID", "the job's id in `cron list`", type=words)


def format_jobs(data: Data) -> str:
    rows = []
    for job in data.records("jobs"):
        due = (job.minute("next") or "never") if job.get("enabled") is True else "paused"
        kind = "reminder" if job.get("reminder") is True else "task"
        schedule, chat, name = (job.field(key, 60) for key in ("words", "chat", "name"))
        rows.append((job.field("id"), due, kind, schedule, chat, name))
    return (
        table(rows, "id", "next", "kind", "schedule", "chat", "name") or "Nothing is scheduled.\n"
    )


def add_queue(queue: Parser) -> None:
    what = queue.group()
    what.operation("list", "list pending and failed messages", "queue.list", format_queue)
    for name, summary in (("retry", "retry a message"), ("drop", "drop a message")):
        change = what.operation(name, summary, f"queue.{name}")
        change.argument("id", "ID", "the message's id in `queue list`, such as in-12 or out-7")


def format_queue(queue: Data) -> str:
    blocks, failed = list[str](), False
    for title, whose in (("inbox", "session"), ("outbox", "to")):
        rows = []
        for entry in queue.records(title):
            place = entry.field("session") or f"{entry['channel']}:{entry['chat_id']}"
            reason = f"  ({entry.field('reason', 100)})" if entry.field("reason") else ""
            said = f"{entry.field('text', 60)}{reason}"
            known = (entry.field(key) for key in ("id", "state", "attempts"))
            rows.append((*known, one_line(place, 200), said))
            failed |= entry.field("state") in ("failed", "dead")
        if rows:
            blocks.append(f"{title}\n{table(rows, 'id', 'state', 'tries', whose, margin=2)}")
    if failed:
        blocks.append(
            "To retry or drop a failed message, run `nanobot queue retry ID` or `nanobot queue "
            "drop ID`.\n"
        )
    return "\n".join(blocks) or "No pending or failed messages.\n"
