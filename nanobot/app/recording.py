"""What the owner's operations changed is kept in the audit log, with who asked for it.

An operation is called with `by`: the page and programs say whose wish it is (`web:owner`); without
it the command line asks. Invariant: no text of a person's is kept with it, so that what is
forgotten or erased does not stay in the log; what was changed is named by numbers and ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nanobot.channel import Operation
from nanobot.errors import NanobotError
from nanobot.security.audit import AuditLog
from nanobot.text import one_line

_LONGEST = 100
_MOST = 10

RECORDED: Mapping[str, Sequence[str]] = {
    "memory.edit": ("version", "path"),
    "memory.restore": ("undone", "to", "versions"),
    "memory.forget": ("versions", "entries", "erase"),
    "memory.accept": ("numbers", "codes"),
    "memory.drop": ("numbers", "codes"),
    "memory.importance": ("level", "version"),
    "memory.dream": (),
    "memory.rebuild": (),
    "conversations.take_back": ("key", "turn"),
    "cron.add": ("id", "chat"),
    "cron.remove": ("id",),
    "cron.pause": ("id",),
    "cron.resume": ("id",),
    "cron.run": ("id",),
    "pair.approve": ("address", "owner"),
    "pair.revoke": ("address",),
    "channels.sign_in": ("name",),
    "config.apply": ("changed",),
    "queue.retry": ("id",),
    "queue.drop": ("id",),
    "backup.make": (),
    "restart": (),
    "web.link": ("account",),
    "web.revoke": ("id",),
}
"""Operations that change something, and what of their results and arguments is kept."""


def recorded(operations: Mapping[str, Operation], audit: AuditLog) -> dict[str, Operation]:
    """The operations, those of `RECORDED` with a line in the log for each call."""

    def recording(name: str, operation: Operation) -> Operation:
        async def call(arguments: Mapping[str, object]) -> object:
            try:
                result = await operation(arguments)
            except NanobotError:
                audit.write(_record(name, "failed", arguments, {}))
                raise
            known = result if isinstance(result, dict) else {}
            audit.write(_record(name, "done", arguments, known))
            return result

        return call if name in RECORDED else operation

    return {name: recording(name, operation) for name, operation in operations.items()}


def _record(
    name: str, outcome: str, arguments: Mapping[str, object], result: Mapping[str, object]
) -> dict[str, str]:
    kept = ((key, result.get(key, arguments.get(key))) for key in RECORDED[name])
    changed = ", ".join(f"{key} {_shown(value)}" for key, value in kept if _says(value))
    by, scope = arguments.get("by"), arguments.get("scope", result.get("scope"))
    record = {"event": "changed", "outcome": outcome, "tool": name}
    record |= {"by": one_line(by, _LONGEST) if isinstance(by, str) and by else "terminal"}
    record |= {"scope": one_line(scope, _LONGEST)} if isinstance(scope, str) and scope else {}
    return record | ({"changed": changed} if changed else {})


def _says(value: object) -> bool:
    return value not in (None, "", False) and value != []


def _shown(value: object) -> str:
    if isinstance(value, list):
        more = len(value) - _MOST
        shown = ", ".join(one_line(str(one), _LONGEST) for one in value[:_MOST])
        return f"{shown} and {more} more" if more > 0 else shown
    return one_line(str(value), _LONGEST)
