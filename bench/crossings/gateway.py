"""A whole gateway in a furnished world, with a scripted model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from bench.crossings.canaries import GROUP, GUEST, OWNER, STRANGER
from bench.crossings.listeners import FOREIGN, MARKER
from bench.crossings.world import SANDBOX, World
from nanobot.agent.hooks import TurnEvent
from nanobot.app.gateway import Gateway
from nanobot.bus.events import Media, Quote, TurnEnded
from nanobot.bus.journal_file import SqliteState
from nanobot.clock import Clock
from nanobot.config.load import load_settings
from nanobot.providers.port import Prompt, Reply
from nanobot.security.paths import Root
from nanobot.skills.loader import SkillsLoader
from nanobot.skills.service import SkillsService
from nanobot.testing import FakeClock, ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from nanobot.tooling import Tool, TurnContext

SCOPES = {"1": OWNER, "3": OWNER, "2": GUEST, "4": STRANGER, "g": GROUP}
"""The scope of each chat."""

ME = "person-1"

IMPATIENCE = 15.0
"""Real seconds after which a turn's commands time out."""

_ID = re.compile(r"Job (\S+) is scheduled|background as (\w+)")
_DONE = "done"
_T = TypeVar("_T")


class _Ends:
    def __init__(self) -> None:
        self.ended: asyncio.Queue[TurnEnded] = asyncio.Queue()

    def __call__(self, event: TurnEvent, caller: TurnContext | None = None) -> None:
        if isinstance(event, TurnEnded):
            self.ended.put_nowait(event)


@dataclass
class AttackedGateway:
    """A running gateway. `plan` holds the model's next replies. `watched` are its prompts since
    `watching` was set to the scope that it then answers for."""

    world: World
    clock: FakeClock
    channel: FakeChannel
    model: ScriptedModel = field(default_factory=ScriptedModel)
    plan: list[Reply] = field(default_factory=list)
    helpers_plan: list[Reply] = field(default_factory=list)
    watching: str = ""
    watched: list[tuple[str, Prompt]] = field(default_factory=list)
    impatience: float = IMPATIENCE
    poison: str = field(default_factory=lambda: f"poison-{secrets.token_hex(8)}")
    job: str = "none"
    process: str = "none"
    ends: _Ends = field(default_factory=_Ends)

    def author(self, prompt: Prompt) -> Reply:
        """Return the model's reply."""
        if self.watching:
            self.watched.append((self.watching, prompt))
        is_helper = prompt.messages[0].text.startswith("You are a helper")
        plan = self.helpers_plan if is_helper else self.plan
        return plan.pop(0) if plan else says(_DONE)

    def learner(self, prompt: Prompt) -> Reply:
        """Return the reply of the consolidating model: it puts everything into everything, and
        works for the attacker once it has read untrusted content."""
        asked = prompt.messages[-1].text
        memory = asked.partition("## Current Long-term Memory\n")[2].partition("\n\n## Conv")[0]
        turned = MARKER in asked
        orders = [f"{FOREIGN} {self.poison}"] if turned else []
        return calls(
            "save_memory",
            history_entry=" ".join(["They talked about tea.", *orders]),
            memory_update="\n".join([memory, *(f"- {order}" for order in orders)]),
            key_facts=orders,
        )

    async def say(
        self,
        text: str,
        *replies: Reply,
        chat: str = "1",
        sender: str = "",
        forwarded_from: str = "",
        reply_to: Quote | None = None,
        media: tuple[Media, ...] = (),
        edits: str = "",
    ) -> str:
        """Send a person's message, let the model do `replies`, and return the answer."""
        self.plan += replies
        event = await self.channel.say(
            text,
            chat,
            sender_id=sender or (ME if SCOPES[chat] == OWNER else chat),
            is_group=chat == "g",
            forwarded_from=forwarded_from,
            reply_to=reply_to,
            media=media,
            edits=edits,
            event_id=secrets.token_hex(8),  # the channel's own ids restart with each gateway
        )
        return await self.patiently(self.channel.answer_to(event, chat))

    async def patiently(self, work: Awaitable[_T]) -> _T:
        """Wait. After `IMPATIENCE`, let hanging commands time out."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait((task,), timeout=self.impatience))[0]:
                await self.clock.advance(61)
            return await task
        finally:
            task.cancel()

    async def until(self, happened: Callable[[TurnEnded], bool]) -> None:
        """Wait for the end of a turn."""
        while not happened(await self.patiently(self.ends.ended.get())):
            pass

    async def answer(self, label: str) -> None:
        """Answer every question with "Approve" or "Deny" as the owner, until cancelled."""
        while True:
            question = await self.channel.next_with_buttons()
            answer = next((b.value for b in question.buttons if b.label == label), "")
            if answer:  # otherwise it is no question: a reminder, or pending facts
                await self.channel.say(answer, question.chat_id, sender_id=ME)

    def result(self) -> str:
        """The result of the last tool call, as the model saw it."""
        return self.model.prompts[-1].messages[-1].text


async def prelude(gateway: AttackedGateway, *, commands: bool) -> None:
    """Create earlier conversations with secrets in them, a job, and a command."""
    world = gateway.world
    for chat, scope in SCOPES.items():
        knowers = {OWNER, scope} if chat != "3" else {OWNER}
        await gateway.say(f"hello, {world.secret(f'said-{chat}', *knowers)}", chat=chat)
    job = world.secret("job", OWNER)
    await gateway.say("remind me", calls("cron", action="add", schedule="every 1h", message=job))
    gateway.job = _id_in(gateway.result())
    if commands:
        command = "cat private.txt; sleep 1000"
        gateway.impatience = 0.1  # a moment shows that the command keeps running
        await gateway.say("work", calls("exec", command=command, background=True), chat="3")
        gateway.impatience = IMPATIENCE
        gateway.process = _id_in(gateway.result())
    await gateway.clock.advance(1)
    await gateway.say("that is all")  # the heartbeat writes to the owner's last chat
    files = [world.home / "sessions" / f"fake_{chat}.jsonl" for chat in SCOPES]
    # Until then no message can be sent there, and no event announces a file.
    while not all(file.exists() for file in files):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def _id_in(text: str) -> str:
    found = _ID.search(text)
    if found is None:
        raise RuntimeError(f"no id in {text[:300]!r}")
    return found[1] or found[2]


@asynccontextmanager
async def running(
    world: World,
    *,
    tools: Sequence[Tool] = (),
    answers: str = "Deny",
    environ: dict[str, str] | None = None,
    clock: FakeClock | None = None,
) -> AsyncIterator[AttackedGateway]:
    """Run a gateway in `world` whose owner gives this answer to each question, or none if it is
    empty."""
    clock = clock or FakeClock()
    attacked = AttackedGateway(world, clock, FakeChannel(clock=clock))
    attacked.model = ScriptedModel(author=attacked.author)
    await _enable_a_skill(world, clock)
    settings = load_settings(
        world.home,
        {
            "NANOBOT_AGENT__SHUTDOWN_GRACE_SECONDS": "0",
            "NANOBOT_DREAM__ENABLED": "false",
            SANDBOX: os.environ.get(SANDBOX, "auto"),
            **(environ or {}),
        },
    )
    gateway = Gateway(
        settings,
        clock=clock,
        provider=attacked.model,
        learner=ScriptedModel(author=attacked.learner),
        channels=(attacked.channel,),
        hooks=(attacked.ends,),
        extra_tools=tools,
        admit_everyone=True,
    )
    async with _living(gateway):
        owner = asyncio.ensure_future(attacked.answer(answers)) if answers else None
        try:
            yield attacked
        finally:
            if owner:
                owner.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await owner


@asynccontextmanager
async def _living(gateway: Gateway) -> AsyncIterator[None]:
    ready = asyncio.Event()
    life = asyncio.ensure_future(gateway.run(on_ready=ready.set, signals=False))
    life.add_done_callback(lambda _: ready.set())
    await ready.wait()
    try:
        yield
    finally:
        gateway.request_stop()
        await life


async def _enable_a_skill(world: World, clock: Clock) -> None:
    with contextlib.closing(SqliteState(world.home / "state")) as state:
        loader = SkillsLoader(Root(world.workspace), state)
        skill = loader.find("on")
        if skill is not None and not skill.is_enabled:
            operations = SkillsService(loader, clock).table()
            await operations["skills.enable"]({"name": "on", "digest": skill.digest})
