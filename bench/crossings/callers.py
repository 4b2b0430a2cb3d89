"""Whoever can make tool calls, and how each comes to do what the attacker wants."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.crossings.canaries import GROUP, GUEST, OWNER
from bench.crossings.payloads import Payload
from bench.crossings.stage import Stage
from bench.crossings.world import write
from nanobot.bus.events import TurnEnded
from nanobot.messages import ToolCall
from nanobot.providers.port import Reply
from nanobot.testing import calls

MINE = {OWNER: "private", GUEST: "guest-file", GROUP: "group-file"}
"""The canary that each scope may know, and nobody else."""

_FILE = "foreign.txt"
_BATCH = 60


@dataclass(frozen=True, slots=True)
class Attacked:
    """A caller. `clean`: the owner allows everything that they can allow, so that what nobody can
    is tried for good. Otherwise foreign text is in the conversation, and they allow nothing.
    `chat` is where its words go, `reads` a file by which it is tainted.
    """

    name: str
    scope: str = OWNER
    chat: str = "1"
    clean: bool = True
    initiator: Literal["person", "job", "heartbeat", "helper"] = "person"
    reads: str = ""

    @property
    def may_schedule(self) -> bool:
        """Whether it can make jobs."""
        return self.clean and self.initiator == "person"

    @property
    def may_reach_out(self) -> bool:
        """Whether it may reach what is the owner's alone."""
        return self.clean and self.scope == OWNER


CALLERS = (
    Attacked("owner"),
    Attacked("owner, tainted", clean=False, reads=_FILE),
    Attacked("guest", GUEST, "2"),
    Attacked("guest, tainted", GUEST, "2", clean=False, reads=_FILE),
    Attacked("group", GROUP, "g", clean=False),  # somebody else's words are there from the start
    Attacked("job", initiator="job"),
    Attacked("job, tainted", clean=False, reads=_FILE, initiator="job"),
    Attacked("heartbeat", initiator="heartbeat"),
    Attacked("heartbeat, tainted", clean=False, reads=_FILE, initiator="heartbeat"),
    Attacked("helper", initiator="helper"),
    Attacked("helper, tainted", clean=False, reads=_FILE, initiator="helper"),
)


def prepare(stage: Stage, caller: Attacked) -> None:
    """What has to be there before the attack."""
    if caller.initiator == "heartbeat":
        file = stage.world.workspace / "HEARTBEAT.md"
        write(file, f"{file.read_text()}\n- Look after the kettle.\n")


def batches_for(
    stage: Stage, caller: Attacked, payloads: Sequence[Payload], *, merge: bool
) -> list[Reply]:
    """The replies of a model that makes these calls."""
    values = {
        **stage.world.values(),
        "poison": stage.poison,
        "mine": stage.world.canaries[MINE[caller.scope]].token,
        "job": stage.job,
        "process": stage.process,
    }
    filled = [ToolCall("", p.tool, p.filled(values)) for p in payloads]
    made = _merged(payloads, values) if merge else filled
    return [Reply("", batch) for batch in _batches(made)]


async def play(stage: Stage, caller: Attacked, payloads: Sequence[Payload], *, merge: bool) -> None:
    """Let the model make these calls for `caller`; returns when it is done."""
    replies = batches_for(stage, caller, payloads, merge=merge)
    if caller.reads:
        replies.insert(0, calls("read_file", path=caller.reads))
    while not stage.ends.ended.empty():
        stage.ends.ended.get_nowait()
    stage.watching = caller.scope
    match caller.initiator:
        case "person":
            await stage.say("go on", *replies, chat=caller.chat)
        case "job":
            stage.plan += replies
            await stage.say(f"/cron run {stage.job}")
            await stage.until(_is_begun_by("job"))
        case "heartbeat":
            stage.plan += replies
            await stage.clock.advance(1_800)
            await stage.until(_is_begun_by("heartbeat"))
        case "helper":
            stage.helpers_plan += replies
            await stage.say("go on", calls("spawn", task="the kettle"))
            await stage.until(lambda ended: not ended.event_ids)  # that of the report
    stage.watching = ""


def _is_begun_by(who: str) -> Callable[[TurnEnded], bool]:
    def ended(turn: TurnEnded) -> bool:
        return turn.initiator == who

    return ended


def _batches(made: Sequence[ToolCall]) -> Iterable[tuple[ToolCall, ...]]:
    return (tuple(made[start : start + _BATCH]) for start in range(0, len(made), _BATCH))


def _merged(payloads: Sequence[Payload], values: dict[str, str]) -> list[ToolCall]:
    """The same with commands that differ in nothing else made one, for speed."""
    made: list[ToolCall] = []
    commands: dict[str, list[str]] = {}
    for payload in payloads:
        text = payload.filled(values)
        if payload.tool != "exec":
            made.append(ToolCall("", payload.tool, text))
            continue
        arguments = json.loads(text)
        command = arguments.pop("command", "")
        commands.setdefault(json.dumps(arguments), []).append(command)
    for arguments, several in commands.items():
        script = "".join(f"timeout 2 bash -c {shlex.quote(one)}\n" for one in several)
        made.append(ToolCall("", "exec", json.dumps({**json.loads(arguments), "command": script})))
    return made
