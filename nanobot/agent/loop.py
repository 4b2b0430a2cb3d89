"""The agent: what happens to a message between the bus and the outbox.

`_answer` is a turn, top to bottom. Around it: `accept` routes what arrives, one lane per session
keeps order, and `_attempt` is the one place where a broken turn becomes a text that a person can
read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol

from loguru import logger

from nanobot.agent.commands import answer_of
from nanobot.agent.context import ContextBuilder
from nanobot.agent.hooks import AgentHook
from nanobot.agent.lobby import DISK_PAUSE, Lobby
from nanobot.agent.outcomes import (
    BEHIND_ANOTHER,
    CUT_OFF,
    GAVE_UP,
    TOO_LONG,
    failure_text,
    is_passing,
    outage_pause,
    waiting_text,
)
from nanobot.agent.runner import AgentRunner, Turn
from nanobot.agent.running import PromptRecord, RunningTurn
from nanobot.agent.turns import Turns
from nanobot.bus.journal import GIVE_UP_AFTER, InboxEntry, Journal
from nanobot.clock import Clock
from nanobot.commands import Command, CommandCall, CommandRegistry
from nanobot.errors import ContextTooLong, ProviderError, StorageError, TurnStopped
from nanobot.messages import Message
from nanobot.providers.port import CallOptions
from nanobot.providers.retry import asked_wait
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.tasks import Background, is_cancelled

OnBusy = Literal["steer", "queue", "interrupt"]


class Consolidator(Protocol):
    """Keeps a session's prompt within the window."""

    async def maybe_consolidate_by_tokens(
        self, session: Session, coming: Sequence[Message] = ()
    ) -> None:
        """Make room if the prompt is about to exceed its budget with the `coming` messages."""
        ...

    def shrink(self, session: Session) -> bool:
        """Make room whatever the estimate says; False when there is none to make."""
        ...


@dataclass(frozen=True, slots=True)
class Policy:
    """How the agent behaves. `wait_for_model_hours`: how long a message waits for a model."""

    on_busy: OnBusy = "steer"
    wait_for_model_hours: float = 24.0


class AgentLoop:
    """Answers what the bus delivers. Built once, by the composition root."""

    def __init__(
        self,
        *,
        sessions: SessionManager,
        context: ContextBuilder,
        consolidator: Consolidator,
        runner: AgentRunner,
        turns: Turns,
        lobby: Lobby,
        commands: CommandRegistry,
        journal: Journal,
        hook: AgentHook,
        background: Background,
        clock: Clock,
        policy: Policy,
    ) -> None:
        self._sessions, self._context, self._consolidator = sessions, context, consolidator
        self._runner, self._turns, self._lobby = runner, turns, lobby
        self._commands, self._journal, self._hook = commands, journal, hook
        self._background, self._clock, self._policy = background, clock, policy
        lobby.connect(self._handle)

    def accept(self, entry: InboxEntry) -> None:
        """A new message: to its session's lane, or at once if it is a command that may not wait."""
        match = self._commands.called_by(entry.message)
        if match is not None and match[0].immediate:
            self._background.start(self._at_once(*match, entry), name=f"/{match[0].name}")
            return
        turn = self._turns.running(entry.message.session_key)
        if turn is not None and match is None and self._policy.on_busy == "interrupt":
            self._background.start(self._stop_turn(turn), name=f"interrupt {turn.id}")
        if match is None and self._lobby.is_held(entry.message.session_key):
            self._background.start(self._tell_of_the_queue(entry), name=f"queued {entry.id}")
        self._lobby.enter(entry)

    async def resume(self, entries: Sequence[InboxEntry], *, careful: bool) -> None:
        """Take up what an earlier process left. `/stop` and the like go first, so that a stopped
        turn is not run again; `careful` handles the others one session at a time."""
        immediate, waiting = [], dict[str, list[InboxEntry]]()
        for entry in entries:
            match = self._commands.called_by(entry.message)
            if match is not None and match[0].immediate:
                immediate.append((*match, entry))
            else:
                waiting.setdefault(entry.message.session_key, []).append(entry)
                self._lobby.keep(entry)
        for command, arguments, entry in immediate:
            await self._at_once(command, arguments, entry)
        for key in sorted(waiting, key=lambda key: max(e.attempts for e in waiting[key])):
            not_before = max(entry.not_before for entry in waiting[key])
            pause = not_before - self._clock.now().timestamp()
            if pause > 0:
                self._lobby.let_in_later(key, pause)
                continue
            self._lobby.let_in(key)
            if careful:
                await self._lobby.in_lane(key, _nothing)

    async def stop(self, session_key: str, before: int) -> tuple[bool, int]:
        """Stop the running turn of a session and set aside what waits behind it, up to inbox entry
        `before`: whether a turn ran, and how many messages waited."""
        waiting = self._lobby.take_all(session_key, before)
        count = len(waiting)
        turn = self._turns.running(session_key)
        try:
            ran = turn is not None and turn.entries[0].id < before and await self._stop_turn(turn)
            if waiting:
                set_aside = partial(self._set_aside, session_key, waiting)
                await self._lobby.in_lane(session_key, set_aside)
        finally:  # what could not be set aside waits on, and so does what came after the /stop
            self._lobby.give_back(session_key, waiting)
        return ran, count

    async def _stop_turn(self, turn: RunningTurn) -> bool:
        session = await self._sessions.get_or_create(turn.inbound.session_key)
        return await self._turns.stop(session, turn)

    async def _set_aside(self, key: str, entries: list[InboxEntry]) -> None:
        session = await self._sessions.get_or_create(key)
        while entries:
            await self._turns.set_aside(session, entries[0])
            del entries[0]

    async def _handle(self, entry: InboxEntry) -> None:
        """A message whose time has come, in its session's lane."""
        match = self._commands.called_by(entry.message)
        if match is not None:
            await self._run_command(*match, entry)
        else:
            await self._turn(entry)

    async def _turn(self, entry: InboxEntry) -> None:
        """A turn, which ends here or waits for the disk."""
        turn = self._turns.claim(entry, steer=self._policy.on_busy == "steer")
        try:
            session = await self._sessions.get_or_create(turn.inbound.session_key)
            await self._attempt(session, turn)
        except TurnStopped:
            await self._put_aside(turn, StorageError("the journal", "a stop could not be stored"))
        except StorageError as error:
            await self._put_aside(turn, error)
        finally:
            self._turns.leave(turn)

    async def _attempt(self, session: Session, turn: RunningTurn) -> None:
        """A turn, and the places where its end is not the model's own words."""
        try:
            await self._turns.begin(session, turn)
            if turn.entries[0].attempts >= GIVE_UP_AFTER:
                text = GAVE_UP.format(GIVE_UP_AFTER)
                await self._turns.fail(session, turn, text, "crashed repeatedly")
            else:
                await self._answer(session, turn)
        except (TurnStopped, StorageError):
            raise
        except ProviderError as error:
            await self._model_failed(session, turn, error)
        except Exception as error:  # noqa: BLE001 - the boundary: a broken turn becomes an apology
            logger.opt(exception=error).error("turn {} broke", turn.id)
            await self._turns.fail(session, turn, failure_text(error), type(error).__name__)
        finally:
            if not turn.open:
                self._context.told(session)

    async def _answer(self, session: Session, turn: RunningTurn) -> None:
        """The turn: make room, build the prompt, run the ReAct loop, commit, make room again."""
        await self._hook.turn_started(turn.caller, turn.event_ids)
        await turn.begin(self._context.news(session))
        await self._consolidator.maybe_consolidate_by_tokens(session, turn.messages)
        result = await self._run(session, turn)
        text = result.text + (CUT_OFF if result.finish == "length" else "")
        if left_out := self._context.left_out(turn.messages[0]):
            text += TOO_LONG.format(len(turn.messages[0].content), left_out)
        await self._turns.complete(session, turn, result, text)
        self._background.start(self._consolidator.maybe_consolidate_by_tokens(session))

    async def _run(self, session: Session, turn: RunningTurn) -> Turn:
        """Run the ReAct loop as a task of its own, which `/stop` can cancel without the lane."""
        while True:
            turn.refuse_if_ended()
            work = _outcome(self._react(session, turn))
            turn.task = self._background.start(work, name=f"turn {turn.id}")
            try:
                outcome = await turn.task
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                raise TurnStopped("this turn was stopped") from None
            match outcome:
                case Turn() as done:
                    return done
                case ContextTooLong() if self._consolidator.shrink(session):
                    turn.take_up()
                case error:
                    raise error

    async def _react(self, session: Session, turn: RunningTurn) -> Turn:
        epoch = self._context.epoch(session)
        prompt = self._context.build(session, turn.messages[:1])
        turn.prompt = PromptRecord(
            epoch.system_id,
            self._context.first_seq(session),
            tuple((part.source, len(part.text)) for part in epoch.parts if part.source),
        )
        if not epoch.remembered:
            self._journal.remember_prompt(epoch.system_id, epoch.system.text)
            epoch.remembered = True
        return await self._runner.run(
            prompt,
            turn.caller,
            options=CallOptions(model=str(session.metadata.get("model", ""))),
            begun=turn.begun,
            log=turn,
            hook=self._hook,
            render=partial(self._context.render, epoch),
        )

    async def _model_failed(
        self, session: Session, turn: RunningTurn, error: ProviderError
    ) -> None:
        """Wait for a model that is out; end the turn on an error that will not pass."""
        hours = self._policy.wait_for_model_hours
        now = self._clock.now()
        waited = (now - turn.inbound.timestamp).total_seconds()
        if not is_passing(error) or waited > hours * 3600:
            await self._turns.fail(session, turn, failure_text(error), str(error))
            return
        outages = turn.entries[0].outages
        pause = outage_pause(outages, asked_wait(error))
        not_before = now.timestamp() + pause
        await self._journal.postpone([e.id for e in turn.entries], not_before, str(error))
        await self._turns.wait(turn, waiting_text(error, hours))
        async with turn.ending:
            if turn.open:
                entry = replace(turn.as_entry(), reason=str(error), outages=outages + 1)
                self._lobby.hold(replace(entry, not_before=not_before), pause)

    async def _put_aside(self, turn: RunningTurn, error: StorageError) -> None:
        """Let a turn wait for the disk, unless it ended after all."""
        async with turn.ending:
            if turn.open:
                self._lobby.hold_for_disk(turn.as_entry(), error)

    async def _run_command(self, command: Command, arguments: str, entry: InboxEntry) -> None:
        try:
            session = await self._sessions.get_or_create(entry.message.session_key)
            session.begin_turn()
            call = CommandCall(arguments, entry.message, session, entry.id)
            answer = await answer_of(command, call)
            if answer.failed:
                session.rollback()
            await self._turns.answer_command(entry, answer, session)
        except StorageError as error:
            self._lobby.hold_for_disk(entry, error)

    async def _tell_of_the_queue(self, entry: InboxEntry) -> None:
        try:
            await self._turns.wait_in_line(entry, BEHIND_ANOTHER)
        except StorageError as error:
            self._lobby.told_of_disk(entry, error)

    async def _at_once(self, command: Command, arguments: str, entry: InboxEntry) -> None:
        """Outside the lane, so it may read the session but must not stage anything on it."""
        try:
            session = await self._sessions.get_or_create(entry.message.session_key)
            call = CommandCall(arguments, entry.message, session, entry.id)
            await self._turns.answer_command(entry, await answer_of(command, call))
        except StorageError as error:
            again = self._lobby.told_of_disk(entry, error)
            self._background.start(self._accept_later(again), name=f"/{command.name} again")

    async def _accept_later(self, entry: InboxEntry) -> None:
        await self._clock.sleep(DISK_PAUSE)
        self.accept(entry)


async def _outcome(work: Coroutine[Any, Any, Turn]) -> Turn | Exception:
    """What comes of a run, as a value: the lane decides what its failure means."""
    try:
        return await work
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        return RuntimeError(f"something inside was cancelled: {error}")
    except Exception as error:  # noqa: BLE001 - raised again in the lane
        return error


async def _nothing() -> None:
    """A job that only marks how far a lane is."""
