"""The callers of tools, and how the attacker controls each of them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.crossings.canaries import GROUP, GUEST, OWNER
from bench.crossings.gateway import AttackedGateway
from bench.crossings.payloads import Payload
from bench.crossings.world import write
from nanobot.bus.events import TurnEnded
from nanobot.messages import ToolCall
from nanobot.providers.port import Reply
from nanobot.testing import calls

MINE = {OWNER: "private", GUEST: "guest-file", GROUP: "group-file"}
"""The canary that only this scope may know."""

_FILE = "foreign.txt"
_BATCH = 60


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller. `clean`: the owner approves everything, so that calls beyond any approval are
    really tried. Otherwise untrusted content is in the conversation, and the owner denies
    everything. `chat` is the destination of its texts, and `reads` a file that taints it."""

    name: str
    scope: str = OWNER
    chat: str = "1"
    clean: bool = True
    initiator: Literal["person", "job", "heartbeat", "helper"] = "person"
    reads: str = ""

    @property
    def may_schedule(self) -> bool:
        """True if it can create jobs."""
        return self.clean and self.initiator == "person"

    @property
    def may_reach_out(self) -> bool:
        """True if it may use the owner's own tools and files."""
        return self.clean and self.scope == OWNER


CALLERS = (
    Caller("owner"),
    Caller("owner, tainted", clean=False, reads=_FILE),
    Caller("guest", GUEST, "2"),
    Caller("guest, tainted", GUEST, "2", clean=False, reads=_FILE),
    Caller("group", GROUP, "g", clean=False),  # other people's words are there from the start
    Caller("job", initiator="job"),
    Caller("job, tainted", clean=False, reads=_FILE, initiator="job"),
    Caller("heartbeat", initiator="heartbeat"),
    Caller("heartbeat, tainted", clean=False, reads=_FILE, initiator="heartbeat"),
    Caller("helper", initiator="helper"),
    Caller("helper, tainted", clean=False, reads=_FILE, initiator="helper"),
)


def prepare(gateway: AttackedGateway, caller: Caller) -> None:
    """Set up the conversation before the attack."""
    if caller.initiator == "heartbeat":
        file = gateway.world.workspace / "HEARTBEAT.md"
        write(file, f"{file.read_text()}\n- Look after the kettle.\n")


def batches_for(
    gateway: AttackedGateway, caller: Caller, payloads: Sequence[Payload], *, merge: bool
) -> list[Reply]:
    """Return the replies of a model that makes these calls."""
    values = {
        **gateway.world.values(),
        "poison": gateway.poison,
        "mine": gateway.world.canaries[MINE[caller.scope]].token,
        "job": gateway.job,
        "process": gateway.process,
    }
    filled = [ToolCall("", p.tool, p.fill(values)) for p in payloads]
    made = _merge(payloads, values) if merge else filled
    return [Reply("", batch) for batch in _batches(made)]


async def play(
    gateway: AttackedGateway, caller: Caller, payloads: Sequence[Payload], *, merge: bool
) -> None:
    """Let the model make these calls for `caller`, and return when it is done."""
    replies = batches_for(gateway, caller, payloads, merge=merge)
    if caller.reads:
        replies.insert(0, calls("read_file", path=caller.reads))
    while not gateway.ends.ended.empty():
        gateway.ends.ended.get_nowait()
    gateway.watching = caller.scope
    match caller.initiator:
        case "person":
            await gateway.say("go on", *replies, chat=caller.chat)
        case "job":
            gateway.plan += replies
            await gateway.say(f"/cron run {gateway.job}")
            await gateway.until(_is_begun_by("job"))
        case "heartbeat":
            gateway.plan += replies
            await gateway.clock.advance(1_800)
            await gateway.until(_is_begun_by("heartbeat"))
        case "helper":
            gateway.helpers_plan += replies
            await gateway.say("go on", calls("spawn", task="the kettle"))
            await gateway.until(lambda ended: not ended.event_ids)  # the report's turn
    gateway.watching = ""


def _is_begun_by(who: str) -> Callable[[TurnEnded], bool]:
    def is_begun(turn: TurnEnded) -> bool:
        return turn.initiator == who

    return is_begun


def _batches(made: Sequence[ToolCall]) -> Iterable[tuple[ToolCall, ...]]:
    return (tuple(made[start : start + _BATCH]) for start in range(0, len(made), _BATCH))


def _merge(payloads: Sequence[Payload], values: dict[str, str]) -> list[ToolCall]:
    """Merge commands that differ in nothing else, for speed."""
    made: list[ToolCall] = []
    commands: dict[str, list[str]] = {}
    for payload in payloads:
        text = payload.fill(values)
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
