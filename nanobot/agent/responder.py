"""Answering one message: a turn, from its beginning in the journal to its end.

`_answer` is the turn, top to bottom; `respond` is the one place where a broken turn becomes a text
that a person can read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from loguru import logger

from nanobot.agent.context import ContextBuilder
from nanobot.agent.hooks import AgentHook
from nanobot.agent.lobby import Lobby
from nanobot.agent.outcomes import (
    GAVE_UP,
    NO_PICTURES,
    TOO_LONG,
    ended_early,
    failure_text,
    is_passing,
    outage_pause,
    waiting_text,
)
from nanobot.agent.runner import AgentRunner, Turn
from nanobot.agent.running import PromptRecord, RunningTurn
from nanobot.agent.turns import Turns
from nanobot.bus.journal import GIVE_UP_AFTER, Journal
from nanobot.clock import Clock
from nanobot.errors import (
    ContextTooLong,
    NanobotError,
    ProviderError,
    ProviderRejected,
    StorageError,
    TurnStopped,
)
from nanobot.messages import Message
from nanobot.providers.port import CallOptions
from nanobot.providers.retry import asked_wait
from nanobot.session.session import Session
from nanobot.tasks import Background, is_cancelled

T = TypeVar("T")

_MAY_BE_AN_IMAGE = frozenset({400, 404, 415, 422})
"""How servers answer to an image that is broken, or that their model cannot see."""


class Consolidator(Protocol):
    """Keeps a session's prompt within the window by taking its oldest part into memory."""

    async def maybe_consolidate_by_tokens(
        self, session: Session, coming: Sequence[Message] = ()
    ) -> None:
        """Make room if the prompt is about to exceed its budget with the `coming` messages."""
        ...

    async def shrink(self, session: Session) -> bool:
        """Make room whatever the estimate says; False when there is none to make."""
        ...


class Calibration(Protocol):
    """Learns how far token estimates are off."""

    def calibrate(self, estimated: int, reported: int) -> None:
        """A prompt of text was estimated at so many tokens, and the provider counted so many."""
        ...


@dataclass(frozen=True, slots=True)
class _Failed:
    """What a part of a turn ended in."""

    error: Exception


class Responder:
    """Answers messages, one turn each. A message waits for a model that is out for up to
    `wait_for_model_hours`. `hint` gives a line that goes into the header of a turn's message."""

    def __init__(
        self,
        *,
        context: ContextBuilder,
        consolidator: Consolidator,
        counter: Calibration,
        runner: AgentRunner,
        turns: Turns,
        lobby: Lobby,
        journal: Journal,
        hook: AgentHook,
        background: Background,
        unhurried: Background,
        clock: Clock,
        wait_for_model_hours: float = 24.0,
        hint: Callable[[RunningTurn], str] = lambda _: "",
    ) -> None:
        self._context, self._consolidator, self._counter = context, consolidator, counter
        self._runner, self._turns, self._lobby = runner, turns, lobby
        self._journal, self._hook = journal, hook
        self._background, self._unhurried, self._clock = background, unhurried, clock
        self._patience_hours = wait_for_model_hours
        self._hint = hint

    async def respond(self, session: Session, turn: RunningTurn) -> None:
        """A turn, and the places where its end is not the model's own words. Raises `TurnStopped`,
        and `StorageError` where the journal does not take its end."""
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
        notice = "\n".join(filter(None, (self._context.news(session), self._hint(turn))))
        await self._stoppable(turn, partial(turn.begin, notice))
        await self._stoppable(turn, partial(self._make_room, session, turn.messages))
        result = await self._run(session, turn)
        text = result.text + ended_early(result.finish)
        if left_out := self._context.left_out(turn.messages[0]):
            text += TOO_LONG.format(len(turn.messages[0].content), left_out)
        if self._context.hides_images(session, turn.messages):
            text += NO_PICTURES
        self._calibrate(session, turn, result)
        await self._turns.complete(session, turn, result, text)
        self._unhurried.start(self._make_room(session))

    async def _make_room(self, session: Session, coming: Sequence[Message] = ()) -> None:
        """Take the oldest into memory where the prompt needs room; a memory in trouble keeps nobody
        from an answer: the runner then shortens the prompt."""
        try:
            await self._consolidator.maybe_consolidate_by_tokens(session, coming)
        except NanobotError as error:
            logger.warning("{}: nothing was put away: {} {}", session.key, error, error.hint)

    async def _run(self, session: Session, turn: RunningTurn) -> Turn:
        """Run the ReAct loop, again where the prompt was too long and could be made shorter, and
        without images where one of them may be what the model refused."""
        shrink = partial(self._consolidator.shrink, session)
        blinded = False
        while True:
            try:
                return await self._stoppable(turn, partial(self._react, session, turn))
            except ContextTooLong:
                if not await self._stoppable(turn, shrink):
                    raise
                turn.take_up()
            except ProviderRejected as error:
                if blinded:
                    self._context.show_images(session)  # they were not what it refused
                blinded = (
                    not blinded
                    and error.status in _MAY_BE_AN_IMAGE
                    and self._context.leave_out_images(session, turn.messages)
                )
                if not blinded:
                    raise
                turn.take_up()

    async def _stoppable(self, turn: RunningTurn, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do a part of a turn as a task of its own, which `/stop` can cancel without the lane. What
        is done for others as well, such as a consolidation, goes on without the turn."""
        turn.refuse_if_ended()
        turn.task = self._background.start(_outcome(work), name=f"turn {turn.id}")
        try:
            outcome = await turn.task
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise TurnStopped("this turn was stopped") from None
        if isinstance(outcome, _Failed):
            raise outcome.error
        return outcome

    async def _react(self, session: Session, turn: RunningTurn) -> Turn:
        epoch = self._context.epoch(session)
        prompt = self._context.build(session, turn.messages[:1])
        turn.prompt = PromptRecord(
            epoch.system_id,
            self._context.first_seq(session),
            epoch.shares,
            prompt.tokens,
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

    def _calibrate(self, session: Session, turn: RunningTurn, result: Turn) -> None:
        """Compare what was estimated with what the provider counted, where both mean one prompt of
        text."""
        images = self._context.has_images(session) or any(m.media for m in turn.messages)
        if result.steps == 1 and not images and not turn.begun.messages:
            self._counter.calibrate(turn.prompt.tokens, result.usage.prompt)

    async def _model_failed(
        self, session: Session, turn: RunningTurn, error: ProviderError
    ) -> None:
        """Wait for a model that is out; end the turn on an error that will not pass."""
        hours = self._patience_hours
        now = self._clock.now()
        since = turn.entries[0].received_at or now.timestamp()
        waited = now.timestamp() - since  # not since it was sent: we may have been off then
        gone_by = turn.inbound.begun_by == "heartbeat"  # another one comes by itself
        if not is_passing(error) or waited > hours * 3600 or gone_by:
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
                entry = replace(entry, not_before=not_before, received_at=since)
                self._lobby.hold(entry, pause)


async def _outcome(work: Callable[[], Coroutine[Any, Any, T]]) -> T | _Failed:
    """What comes of a part of a turn, as a value: the lane decides what its failure means."""
    try:
        return await work()
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        return _Failed(RuntimeError(f"something inside was cancelled: {error}"))
    except Exception as error:  # noqa: BLE001 - raised again in the lane
        return _Failed(error)
