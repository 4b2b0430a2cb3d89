"""A gateway as a worker of a team: which scopes it has, and their delivery to its agent and
channels.

The worker whose platform connection got a message stores it, and the worker with the lease of its
scope handles it. `_look` does all of that: it delivers new work, claims free scopes with pending
work, resumes what their last worker left, and releases idle scopes.

It runs for all scopes twice a second and not more often, so nothing depends on notifications. In
between it runs for single scopes, at once. The worker that stored a message tries its scope first.
If another one has the lease, it sends `work`, which only the holder follows, and later follows that
scope's `free`, as no other worker does. So a message costs a query or two, however many workers
there are.

Invariants:

- Work is delivered only for scopes of this worker, and once: `ScopeState` keeps its ids until a
  look finds it ended.
- A scope is released only when it has no running work here, also in threads, and all of it is
  stored.
- Within a look, messages are delivered in the platform's order, not in that of their commits."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path

from loguru import logger
from msgspec.structs import replace

from nanobot.agent.commands import ConversationCommands
from nanobot.agent.helpers import Helpers
from nanobot.agent.loop import AgentLoop
from nanobot.agent.turn_state import AgentParts
from nanobot.bus.journal import InboxEntry, Leftovers, OutboxPart
from nanobot.errors import NanobotError, StorageError
from nanobot.gateway.delivery import Dispatcher
from nanobot.gateway.scopes import (
    CLOSE_SECONDS,
    ScopedThreads,
    ScopeState,
    Single,
    Takeover,
    is_fresh,
    order,
    wait_for_calls,
)
from nanobot.memory.scopes import Memories
from nanobot.tasks import SCOPES, Background
from nanobot.team.journal import AFFINE, PostgresJournal
from nanobot.team.leases import Leases
from nanobot.team.membership import Membership
from nanobot.team.notifications import Notifications
from nanobot.tooling import OWNER

_LOOK_SECONDS = 0.5
_REST_SECONDS = 20.0
"""Seconds that an idle scope is kept."""
_YIELD_SECONDS = 0.3
"""Seconds before a scope given to another worker is claimed again."""
_PATIENCE = 15.0
"""Timeout in seconds for a scope that another worker has."""
_MOST_REFUSED = 1_000
"""Most scopes to remember whose lease another worker had."""
_MOST_WAITING = 64
"""Scopes without a free place that a full look finds. They begin without another full look."""


class TeamWorker:
    """The scopes of this worker. `refresh` rereads shared documents and blocks. `singles` are by
    the name of their lease."""

    def __init__(
        self,
        journal: PostgresJournal,
        membership: Membership,
        shared: Path,
        parts: AgentParts,
        loop: AgentLoop,
        dispatcher: Dispatcher,
        memories: Memories,
        helpers: Helpers,
        conversation: ConversationCommands,
        *,
        refresh: Callable[[], None],
        singles: Mapping[str, Single],
    ) -> None:
        self._journal, self._membership = journal, membership
        self._bus, self._clock, self._queue = parts.bus, parts.clock, parts.queue
        self._sessions, self._lanes = parts.sessions, parts.lanes
        self._loop, self._dispatcher = loop, dispatcher
        self._helpers, self._conversation = helpers, conversation
        self._refresh, self._singles = refresh, singles
        self._leases = Leases(journal.database)
        self.notifications = Notifications(journal.database.address, self._handle_notification)
        self.listeners: dict[str, Callable[[str], None]] = {}
        """Further receivers of other workers' notifications, by kind."""
        self._background = Background()
        self._threads = ScopedThreads()
        self._scopes: dict[str, ScopeState] = {}
        self._claimed: dict[str, bool] = {}
        """Claimed scopes that are not taken up yet, and whether their last worker died."""
        self._woken = asyncio.Event()
        self._changed = asyncio.Condition()
        self._ending = asyncio.Event()
        files, is_over = (shared, self._sessions, memories), self._ending.is_set
        self._takeover = Takeover(journal, self._leases, *files, self._clock, is_over)
        self._asked: dict[str, set[int]] = {}
        """Undelivered messages whose clients wait at this worker, by scope."""
        self._needed: Counter[str] = Counter()
        """Scopes that callers wait to hold."""
        self._yielded: dict[str, float] = {}
        """Until when a scope is left to the worker that requested it."""
        self._news: set[str] = set()
        """Scopes with rows stored here since the last look."""
        self._due: set[str] = set()
        """Other scopes for the next look."""
        self._waiting: set[str] = set()
        """Scopes with work that found no free place since the last full look."""
        self._refused = set[str]()
        """Scopes that this worker wanted and another one had."""
        self._bus.worker = self

    async def start(self) -> None:
        """Start to look for work."""
        asyncio.get_running_loop().set_default_executor(self._threads)
        self._lanes.freed = lambda: self._look_soon(*self._waiting)
        self.notifications.start()
        clearing = self._takeover.clear_temporaries(everywhere=True)
        self._background.start(clearing, name="clear the workspace")
        self._background.start(self._look_forever(), name="scopes of this worker")

    async def hand_over(self) -> None:
        """Begin nothing more and release each scope as soon as it is idle. Pending messages are for
        other workers, at once."""
        waiting = self._bus.unread_entries() + self._queue.drop_waiting()
        gone = {entry.id for entry in waiting}
        self._ending.set()
        for name in self._singles.keys() & self._scopes.keys():
            await self._singles[name].stop()
        for scope in self._scopes.values():
            scope.leaving = True
            scope.entries -= gone
        self._look_soon(*self._scopes)

    async def close(self) -> None:
        """Release everything. Call it once all work has ended and is stored. Unfinished work keeps
        its scopes until the process ends."""
        if not self._membership.id:
            return
        await self._background.drain(0)
        calls = list(self._threads.calls)
        await wait_for_calls(calls)
        used = {name for name, one in self._scopes.items() if one.used}
        busy = self._threads.scopes | used
        names = self._scopes.keys() - busy
        self._scopes.clear()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._journal.release(names)
                await self._takeover.release(names)
            for scope in names:
                self.notifications.tell("free", scope)
        except (StorageError, TimeoutError) as error:
            said = str(error) or "the database does not respond"
            logger.warning("other workers take over once they consider this one dead: {}", said)
        await self.notifications.close()
        if busy:
            logger.warning(
                "other workers take over {} once its running work has ended", sorted(busy)
            )
        if not used:

            def leave() -> None:
                wait(calls)
                self._membership.leave()

            await wait_for_calls([ThreadPoolExecutor(1).submit(leave)])

    def has(self, scope: str) -> bool:
        return scope in self._scopes

    @asynccontextmanager
    async def holding(self, scope: str) -> AsyncIterator[None]:
        """Hold a scope while inside, for work on its files without a message. Raise `NanobotError`
        if another worker does not release it in time."""
        self._needed[scope] += 1
        self._look_soon(scope)
        try:
            async with asyncio.timeout(_PATIENCE), self._changed:
                while scope not in self._scopes:
                    await self._changed.wait()
                held = self._scopes[scope]
                held.used += 1
        except TimeoutError:
            raise NanobotError(
                "another worker is using this memory", hint="Try again in a moment."
            ) from None
        finally:
            self._needed[scope] -= 1
            if not self._needed[scope]:
                del self._needed[scope]
        before = SCOPES.get()
        SCOPES.set((*before, scope))
        try:
            yield
        finally:
            SCOPES.set(before)
            held.used -= 1
            if held.leaving:
                self._look_soon(scope)

    def note_stored(self, entries: Sequence[InboxEntry]) -> None:
        """Note new messages of this worker's channels in the database."""
        for entry in entries:
            if entry.message.channel in AFFINE:
                self._asked.setdefault(entry.scope, set()).add(entry.id)
                if entry.scope not in self._scopes and self._loop.is_stop(entry.message):
                    key = entry.message.session_key
                    self.notifications.tell("stop", f"{entry.id} {entry.scope} {key}")
            self._news.add(entry.scope)
        self._woken.set()

    def note_ended(self, entry_ids: Sequence[int]) -> None:
        """Forget ended messages, so that a retry is delivered again."""
        for name, scope in self._scopes.items():
            if scope.entries.intersection(entry_ids):
                scope.entries.difference_update(entry_ids)
                if scope.leaving:
                    self._look_soon(name)

    def send(self, parts: Sequence[OutboxPart]) -> None:
        """Send new parts of this worker's scopes at once. Without parts, note that one has
        ended."""
        new = {item.scope for item in parts} - self._scopes.keys()
        self._news |= new
        self._submit([item for item in parts if item.scope in self._scopes])
        self._look_soon(*new, *(name for name, one in self._scopes.items() if one.leaving))

    def _submit(self, parts: Sequence[OutboxPart]) -> None:
        """Send each part once. A part for a channel that is off is pending and keeps no scope."""
        new = [item for item in parts if item.id not in self._scopes[item.scope].parts]
        self._dispatcher.submit(new)
        for item in new:
            if item.part.channel in self._dispatcher.channels:
                self._scopes[item.scope].parts.add(item.id)

    def _handle_notification(self, kind: str, name: str) -> None:
        """Handle a notification of another worker."""
        if listener := self.listeners.get(kind):
            listener(name)
        match kind:
            case "want" if name in self._scopes and name not in self._singles:
                self._leave_soon(name)
            case "work" if name in self._scopes or name in self._claimed:
                self._look_soon(name)
            case "free" if name in self._refused or name in self._singles:
                self._refused.discard(name)
                self._look_soon(name)
            case "stop":
                stopping = self._stop_for_other(*name.split(" ", 2))
                self._background.start(stopping, name="stop for another worker")

    def _leave_soon(self, name: str) -> None:
        """Release a scope to the worker that requests it, once it is idle here."""
        scope, now = self._scopes[name], self._clock.monotonic()
        if not scope.leaving and now >= scope.stays_until:
            scope.leaving, scope.asked_at = True, now
        if scope.leaving:  # also on a repeated request: its work may have ended
            self._look_soon(name)

    async def _stop_for_other(self, entry_id: str, scope: str, key: str) -> None:
        """Do the `/stop` of another worker, before that one gets the scope and reports the
        outcome."""
        async with self.holding(scope) if scope in self._scopes else nullcontext():
            if said := await self._conversation.stop(key, int(entry_id)):
                self._journal.note_outcome(int(entry_id), said)

    def _look_soon(self, *scopes: str) -> None:
        if scopes:
            self._due.update(scopes)
            self._woken.set()

    def _note_refused(self, scope: str) -> None:
        if len(self._refused) >= _MOST_REFUSED:
            self._refused.clear()
        self._refused.add(scope)

    async def _look_forever(self) -> None:
        looked_at = -math.inf
        while True:
            left = looked_at + _LOOK_SECONDS - self._clock.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(left, 0.0)):
                    await self._woken.wait()
            self._woken.clear()
            now = self._clock.monotonic()
            is_time = now - looked_at >= _LOOK_SECONDS
            looked_at = now if is_time else looked_at
            try:
                await self._look(everywhere=is_time)
                if is_time:
                    await asyncio.to_thread(self._refresh)
            except Exception as error:  # noqa: BLE001 - the boundary: the next look may go well
                if not isinstance(error, StorageError):  # the journal logs those
                    logger.opt(exception=error).error("could not look for work")
                await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self, *, everywhere: bool) -> None:
        """Look at the scopes that are due, or at all."""
        news, due = self._news, self._news | self._due
        self._news, self._due = set(), set()
        if everywhere:
            self._waiting.clear()
        if mine := self._scopes.keys() if everywhere else due & self._scopes.keys():
            await self._deliver(mine)
        if not self._claimed and not self._ending.is_set():
            await self._claim(None if everywhere else due - self._scopes.keys())
        for scope in news - self._scopes.keys() - self._claimed.keys():
            self._note_refused(scope)
            self.notifications.tell("work", scope)
        self._recover_again()
        if self._claimed:
            await self._take_up()
            async with self._changed:
                self._changed.notify_all()
        await self._give_back(self._scopes.keys() if everywhere else due & self._scopes.keys())

    async def _claim(self, among: set[str] | None) -> None:
        """Claim free scopes with work, of these or of all, as many as can begin here at once, and
        leave the rest to workers with less to do. Request needed scopes from their holders."""
        now = self._clock.monotonic()
        self._yielded = {name: until for name, until in self._yielded.items() if now < until}
        wanted = {*self._asked, *self._needed} - self._scopes.keys() - self._yielded.keys()
        lacking = wanted | (self._singles.keys() - self._scopes.keys())
        room = self._lanes.room
        if among is not None:
            wanted, lacking = wanted & among, lacking & among
            if not room:
                self._waiting |= among - lacking
                among = lacking
            if not among:
                return
        channels = self._dispatcher.channels
        found = await self._leases.free(lacking, room + _MOST_WAITING, channels, among)
        begin = room + len(lacking.intersection(found))
        self._waiting.update(found[begin:])
        if free := [name for name in found[:begin] if name not in self._yielded]:
            claimed = await self._leases.claim(free)
            self._claimed |= claimed
            wanted -= claimed.keys()
            self._refused -= claimed.keys()
        for scope in wanted:
            self._note_refused(scope)
            self.notifications.tell("want", scope)

    async def _take_up(self) -> None:
        """Resume the work of the claimed scopes' last worker."""
        claimed = self._claimed.copy()
        dead = {scope for scope, died in claimed.items() if died}
        if self._ending.is_set():
            self._claimed.clear()
            await self._leases.release(claimed.keys() - dead)
            await self._leases.put_back(dead)
            return
        if dead:
            await self._takeover.end_changes_of_the_dead()
        self._sessions.doubt()
        await asyncio.to_thread(self._takeover.recover, claimed)
        leftovers = await self._journal.leftovers(claimed)
        stuck = await self._takeover.file(leftovers.unfiled)
        if self._ending.is_set():  # it may have begun during the look
            return
        now = self._clock.monotonic()
        if stuck:  # another worker may succeed, or this one later
            await self._leases.put_back(stuck)
            self._yielded |= dict.fromkeys(stuck, now + _PATIENCE)
        mine = claimed.keys() - stuck
        for scope in claimed:
            del self._claimed[scope]
        for scope in mine:
            self._scopes[scope] = ScopeState(rests_since=now)
            if scope in self._singles:
                self._singles[scope].start()
        self._resume(leftovers, mine)
        self._background.start(self._helpers.recover(mine), name="recover helpers")
        if dead or claimed.keys() & {OWNER, *self._singles}:
            self._background.start(self._withdraw_questions(), name="withdraw questions")

    async def _withdraw_questions(self) -> None:
        """Close the questions of dead workers in the chats of this one."""
        asked = await self._takeover.open_questions()
        self._dispatcher.withdraw_questions(one for one in asked if self.has(one[0].scope))

    def _resume(self, leftovers: Leftovers, scopes: Collection[str]) -> None:
        """Deliver an earlier worker's leftovers. Messages that it had not begun are handled like
        new ones."""
        by_session: dict[str, list[InboxEntry]] = {}
        for entry in leftovers.entries:
            if entry.scope in scopes:
                known = self._scopes[entry.scope].entries
                known |= {entry.id, *(one.id for one in entry.joined)}
                by_session.setdefault(entry.message.session_key, []).append(entry)
        self._submit([item for item in leftovers.parts if item.scope in scopes])
        resumed: list[InboxEntry] = []
        fresh: list[InboxEntry] = []
        for entries in by_session.values():
            (fresh if all(map(is_fresh, entries)) else resumed).extend(entries)
        for entry in sorted(fresh, key=order):
            self._bus.deliver(replace(entry, recovered=False))
        if resumed:
            logger.info("resuming {} unfinished messages", len(resumed))
            self._bus.count_open(resumed)
            self._background.start(self._loop.resume(resumed), name="resume")

    async def _deliver(self, names: Collection[str]) -> None:
        """Deliver new work of these scopes, and forget ended work."""
        scopes = {name: self._scopes[name] for name in names}
        asked = {name: set(self._asked[name]) for name in scopes.keys() & self._asked.keys()}
        known = set[int]().union(*(one.entries for one in scopes.values()))
        known_parts = set[int]().union(*(one.parts for one in scopes.values()))
        channels = self._dispatcher.channels
        found = await self._journal.open_work(scopes.keys(), known, known_parts, channels)
        # A rejected part that is to be sent after all is handled like a new one.
        over = known - found.entry_ids, known_parts - (found.part_ids & self._dispatcher.in_hand)
        for one in scopes.values():
            one.entries -= over[0]
            one.parts -= over[1]
        self._hand_out(found.entries)
        for name, ids in asked.items():
            self._asked[name] -= (ids - found.entry_ids) | self._scopes[name].entries
            if not self._asked[name]:
                del self._asked[name]
        self._submit([item for item in found.parts if not self._scopes[item.scope].leaving])

    def _hand_out(self, entries: Sequence[InboxEntry]) -> None:
        """Deliver new messages while there are places for their turns."""
        waiting = set[str]()
        affine = {one.scope for one in entries if one.message.channel in AFFINE}
        for entry in sorted(entries, key=order):
            owner = self._scopes[entry.scope]
            # Otherwise idle scopes of this worker would overtake longer waiting ones.
            if not (owner.entries or self._lanes.room or entry.scope in affine):
                waiting.add(entry.scope)
            begins = not owner.leaving and entry.scope not in waiting
            if not begins and not self._ending.is_set():
                begins = self._loop.bypasses_lane(entry.message)
            if begins and entry.id not in owner.entries:
                owner.entries.add(entry.id)
                self._bus.deliver(entry)
        self._waiting |= waiting

    def _recover_again(self) -> None:
        """Retry failed recoveries of idle scopes."""
        in_threads = self._threads.scopes
        for name in self._takeover.due:
            scope = self._scopes.get(name)
            if scope and not (scope.is_busy or scope.leaving or name in in_threads):
                del self._scopes[name]
                self._claimed[name] = True

    async def _give_back(self, names: Collection[str]) -> None:
        """Release the idle ones of these scopes, or at once if no more turns can begin here."""
        now, in_threads = self._clock.monotonic(), self._threads.scopes
        ready = [name for name in names if self._has_rested(name, now, in_threads)]
        if not ready:
            return
        unfit = await self._journal.find_unfiled(ready) | self._threads.scopes
        ready = [n for n in ready if n not in unfit and not self._scopes[n].is_busy]
        for name in ready:
            if self._scopes.pop(name).leaving:
                self._yielded[name] = now + _YIELD_SECONDS
        await self._takeover.release(ready)
        for scope in ready:
            self.notifications.tell("free", scope)

    def _has_rested(self, name: str, now: float, in_threads: Collection[str]) -> bool:
        """Return True if a scope can be released, as far as this process knows."""
        one, rest = self._scopes[name], _REST_SECONDS if self._lanes.room else 0.0
        if not (one.is_busy or name in in_threads):
            return one.leaving or (name not in self._singles and now - one.rests_since > rest)
        one.rests_since = now
        if one.leaving and not self._ending.is_set() and now - one.asked_at > _PATIENCE:
            # The other worker has given up, and pending work here must not wait longer.
            one.leaving, one.stays_until = False, now + _PATIENCE
        return False
