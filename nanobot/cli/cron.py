"""`nanobot cron`: what is scheduled."""

from __future__ import annotations

from nanobot.cli.answer import Data
from nanobot.cli.command import Commands, table, words

_CHANGES = (
    ("remove", "remove a job"),
    ("run", "run a job now, in addition to its schedule"),
    ("pause", "pause a job"),
    ("resume", "resume a paused job"),
)

_SCHEDULES = (
    "'every day at 8', 'weekdays at 7:30', 'tomorrow 9:00', 'in 20 minutes', 'every 2h', or a cron"
    " expression ('0 8 * * 1-5')"
)
_CHAT = "where it speaks, as `sessions list` shows it (default: the chat that the owner used last)"


def add_cron(commands: Commands) -> None:
    """`nanobot cron …`."""
    what = commands.group("cron", "schedule reminders and recurring work")
    what.operation("list", "list what is scheduled", "cron.list", _list_text)
    new = what.operation("add", "add a reminder, or a task for the agent", "cron.add")
    new.argument("schedule", "SCHEDULE", _SCHEDULES, type=words)
    new.argument("message", "MESSAGE", "the reminder's text, or the task", type=words)
    new.flag("--task", "give MESSAGE to the agent, and send its answer")
    new.option("--name", "NAME", "what the job is called")
    new.option("--chat", "CHANNEL:ID", _CHAT)
    new.option("--zone", "ZONE", "the schedule's time zone (default: agent.timezone)")
    new.option("--model", "NAME", "which of `models` does the task (default: that of `use.jobs`)")
    for name, summary in _CHANGES:
        change = what.operation(name, summary, f"cron.{name}")
        change.argument("id", "ID", "as `cron list` shows it", type=words)


def _list_text(data: Data) -> str:
    rows = []
    for job in data.records("jobs"):
        due = (job.minute("next") or "never") if job.get("enabled") is True else "paused"
        kind = "reminder" if job.get("reminder") is True else "task"
        schedule, chat, name = (job.field(key, 60) for key in ("words", "chat", "name"))
        rows.append((job.field("id"), due, kind, schedule, chat, name))
    return (
        table(rows, "id", "next", "kind", "schedule", "chat", "name") or "Nothing is scheduled.\n"
    )
