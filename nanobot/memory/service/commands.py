"""The slash commands about memory, and what waits to be forgotten until the person says yes.

A command works on the memory that its message speaks to and on no other: the
owner's for the owner, a person's own for anyone else, the group's in a group. What concerns a
group as a whole (what it takes for true, forgetting) is the owner's to decide there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from loguru import logger

from nanobot.bus.events import InboundMessage
from nanobot.bus.journal import JournalReports
from nanobot.clock import Clock
from nanobot.commands import Answer, Command, CommandCall, CommandRegistry
from nanobot.errors import NanobotError
from nanobot.memory.scopes import OWNER, Scopes, is_group
from nanobot.memory.search import Query
from nanobot.memory.service import views
from nanobot.memory.service.continuing import UNDO, ContinueCommand, DiscardCommand
from nanobot.memory.service.service import MemoryService
from nanobot.security.paths import Place
from nanobot.session.session import Session

PATIENCE = timedelta(minutes=10)
"""For which a question holds."""

_MOST = 1_000
"""Open questions; the oldest make room, so that their number is bounded."""
_LIMIT = 10_000_000
_YES, _NO = frozenset({"y", "yes"}), frozenset({"n", "no"})


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be forgotten and where, who was asked (`of`), and by which message of theirs.
    `until` is an ISO time; `is_last`: they have said nothing since."""

    text: str
    scope: str
    erase: bool
    of: str
    message: str
    until: str
    is_last: bool = True


class Questions:
    """What is to be forgotten once the person says yes: by a code, or by `y` as their next message.

    A question holds for ten minutes, once, for who was asked and where. The file at `place` keeps
    it over a restart or the end of a one-shot command. It holds what is to be forgotten: it lists
    open questions only, and is gone where there is none. That it cannot be written is only logged:
    the questions then end with the process. `new_code` makes codes: short, and hard to guess.
    """

    def __init__(self, place: Place, clock: Clock, new_code: Callable[[], str]) -> None:
        self._place, self._clock, self._new_code = place, clock, new_code
        self._known: dict[str, Question] | None = None

    def ask(self, text: str, scope: str, *, erase: bool, of: str, message: str) -> str:
        """Remember what was asked of whom, by which message; the code that says yes to it."""
        standing = self._open()
        code = self._new_code()
        while code in standing:
            code = self._new_code()
        until = (self._clock.now() + PATIENCE).isoformat()
        others = self._not_last(standing, of)
        kept = dict(list(others.items())[-_MOST + 1 :])
        self._keep({**kept, code: Question(text, scope, erase, of, message, until)})
        return code

    def confirmed(self, code: str, of: str) -> Question | None:
        """What `code` says yes to; None where it is unknown, old, used, or somebody else's. What
        else was asked of them is asked no more: it may hold what is now forgotten."""
        standing = self._open()
        question = standing.get(code.strip().lower())
        if question is None or question.of != of:
            return None
        self._keep({name: one for name, one in standing.items() if one.of != of})
        return question

    def meant(self, text: str, of: str, message: str) -> str:
        """The command that `y` or `n` stands for where a question was asked just before; empty for
        anything else that they say, after which it stands for nothing."""
        asked = {code: one for code, one in self._open().items() if one.of == of and one.is_last}
        word = text.strip().lower()
        for code, one in asked.items():
            if one.message == message:
                return ""
            if word in _YES | _NO:
                return f"/forget {'--yes' if word in _YES else '--no'} {code}"
        if asked:
            self._keep(self._not_last(self._open(), of))
        return ""

    def _not_last(self, standing: dict[str, Question], of: str) -> dict[str, Question]:
        return {
            code: replace(one, is_last=one.is_last and one.of != of)
            for code, one in standing.items()
        }

    def _open(self) -> dict[str, Question]:
        """Those that hold still."""
        known = self._read() if self._known is None else self._known
        now = self._clock.now()
        fresh = {
            code: one
            for code, one in known.items()
            if now < datetime.fromisoformat(one.until) <= now + PATIENCE
        }
        if fresh != known:
            self._keep(fresh)
        self._known = fresh
        return fresh

    def _read(self) -> dict[str, Question]:
        try:
            stored = json.loads(self._place.read_bytes(_LIMIT) or b"{}")
            return {str(code): Question(**fields) for code, fields in stored.items()}
        except (NanobotError, ValueError, TypeError, AttributeError) as error:
            logger.warning("{}: open questions are dropped: {}", self._place.shown, error)
            return {}

    def _keep(self, questions: dict[str, Question]) -> None:
        self._known = questions
        content = {code: asdict(one) for code, one in questions.items()}
        try:
            if questions:
                self._place.write_bytes(json.dumps(content).encode())
            elif self._place.stat() is not None:
                self._place.remove()
        except NanobotError as error:
            logger.warning("open questions are not kept: {}", error)


_MEMORY = "[search TEXT | why TEXT | pending | accept N | drop N]"
_RESTORE = "--list | --version N | --to N"
_UNDO = f"[{UNDO}]"

_NAMES = re.compile(r"(?:(?:\d{1,9}|[0-9a-f]{16})(?:[\s,]+|$))+")
"""Facts that wait, by number or by code (see `PendingFact`)."""
_FEW = 5
_SURE, _NOT_SURE, _ERASE = "--yes", "--no", "--erase"
_OWNERS_WORD = "In a group this is the owner's to decide."


class Compactor(Protocol):
    """Puts a conversation away into memory; `MemoryConsolidator`."""

    async def compact(self, session: Session) -> str:
        """Do it now; one line that says what was put away."""
        ...

    async def seal(self, session: Session) -> None:
        """Put away what `/new` ended, or wait for that where it is under way."""
        ...


class MemoryCommands:
    """`/memory /forget /note /compact /discard /continue /usage /dream /dream-log /dream-restore`.

    `questions` are those that a `/forget` asks.
    """

    def __init__(
        self,
        *,
        service: MemoryService,
        compactor: Compactor,
        continuing: ContinueCommand,
        discarding: DiscardCommand,
        scopes: Scopes,
        reports: JournalReports,
        clock: Clock,
        questions: Questions,
    ) -> None:
        self._service, self._compactor = service, compactor
        self._continuing, self._discarding = continuing, discarding
        self._scopes, self._reports = scopes, reports
        self._clock, self._questions = clock, questions

    def register(self, registry: CommandRegistry) -> None:
        """Add them all to `registry`."""
        registry.understand(lambda said: self._questions.meant(said.content, *_asker(said)))
        discard, continue_ = self._discarding.run, self._continuing.run
        for name, summary, run, arguments, ordered in (
            ("memory", "Show what is remembered", self._memory, _MEMORY, False),
            ("note", "Write into today's notes", self._note, "TEXT", False),
            ("forget", "Forget something, after asking", self._forget, "[--erase] TEXT", False),
            ("compact", "Put this conversation away into memory", self._compact, "", True),
            ("discard", "Drop this conversation without remembering it", discard, _UNDO, True),
            ("continue", "Go on with another conversation here", continue_, "[name]", True),
            ("usage", "Show how many tokens were used", self._usage, "", False),
            ("dream", "Learn now from what was said", self._dream, "", False),
            ("dream-log", "Show what a change of memory did", self._log, "[version]", False),
            (
                "dream-restore",
                "Undo a change of memory, or go back to a version",
                self._restore,
                _RESTORE,
                False,
            ),
        ):
            registry.register(Command(name, summary, run, arguments, ordered=ordered))

    async def _memory(self, call: CommandCall) -> Answer:
        word, _, rest = call.arguments.partition(" ")
        scope, rest = self._scope(call), rest.strip()
        match word.lower():
            case "":
                return Answer((await self._service.show(scope)).text)
            case "search" if rest:
                return Answer((await self._service.search(Query(rest, (), limit=_FEW), scope)).text)
            case "why" if rest:
                return Answer((await self._service.why(_unquoted(rest), scope)).text)
            case "pending":
                return Answer((await self._service.pending(scope)).text)
            case "accept" | "drop" as decision if _NAMES.fullmatch(rest):
                return await self._decide(call, decision, rest.replace(",", " ").split())
        return Answer(f"Write it as: /memory {_MEMORY}")

    async def _decide(self, call: CommandCall, decision: str, names: list[str]) -> Answer:
        if not self._may_decide(call):
            return Answer(_OWNERS_WORD)
        await call.once()  # the numbers are others afterwards
        service = self._service
        decide = service.accept if decision == "accept" else service.drop
        return Answer((await decide(names, self._scope(call))).text)

    async def _note(self, call: CommandCall) -> Answer:
        if not call.arguments:
            return Answer("Say what to note: /note the key is under the mat")
        await call.once()
        # In a group a note is taken for true only where the owner wrote it.
        origin = "" if self._may_decide(call) else f"person:{call.message.sender_id[:80]}"
        return Answer((await self._service.note(call.arguments, self._scope(call), origin)).text)

    async def _forget(self, call: CommandCall) -> Answer:
        if not self._may_decide(call):
            return Answer(_OWNERS_WORD)
        word, _, rest = call.arguments.partition(" ")
        if word in (_SURE, _NOT_SURE):
            return await self._forget_now(call, rest, sure=word == _SURE)
        erase = word == _ERASE
        text = _unquoted(rest.strip() if erase else call.arguments)
        if not text:
            return Answer("Say what to forget: /forget my shoe size")
        scope = self._scope(call)
        if erase and scope != OWNER:
            return Answer("Erasing reaches every file, so it is for this nanobot's owner only.")
        plan = await self._service.forget_plan(text, scope, erase=erase)
        if not plan.data["found"]:
            return Answer(plan.text)
        asker, message = _asker(call.message)
        code = self._questions.ask(text, scope, erase=erase, of=asker, message=message)
        how = "To erase it for good" if erase else "To forget it"
        return Answer(
            f"{plan.text}\n\n{how}, answer `y`, or within ten minutes `/forget --yes {code}`."
        )

    async def _forget_now(self, call: CommandCall, code: str, *, sure: bool) -> Answer:
        question = self._questions.confirmed(code, _asker(call.message)[0])
        if question is None:
            return Answer("This code is not valid (any more). Say again what to forget.")
        if not sure:
            return Answer("Nothing was forgotten.")
        service, scope = self._service, question.scope
        return Answer((await service.forget(question.text, scope, erase=question.erase)).text)

    async def _compact(self, call: CommandCall) -> Answer:
        return Answer(await self._compactor.compact(call.session))

    async def _usage(self, call: CommandCall) -> Answer:
        today = self._clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
        all_of_it = self._scope(call) == OWNER
        key = "" if all_of_it else call.session.key
        rows = [
            ("this conversation", await self._reports.usage(session=call.session.key)),
            ("today", await self._reports.usage(session=key, since=today)),
            ("this month", await self._reports.usage(session=key, since=today.replace(day=1))),
        ]
        learning = await self._reports.learning(today.replace(day=1).date()) if all_of_it else None
        return Answer(views.usage_text(rows, learning))

    async def _dream(self, call: CommandCall) -> Answer:
        await self._compactor.seal(call.session)  # a /new just before is to be learned from, too
        return Answer((await self._service.dream(self._scope(call))).text)

    async def _log(self, call: CommandCall) -> Answer:
        number = _number(call.arguments)
        if call.arguments and number is None:
            return Answer("Say which version: /dream-log 12")
        return Answer((await self._service.log(number, self._scope(call))).text)

    async def _restore(self, call: CommandCall) -> Answer:
        words = call.arguments.replace("=", " ").split()
        if words in ([], ["--list"]):
            return Answer((await self._service.versions(self._scope(call))).text)
        number = _number(words[-1])
        if words[:-1] not in ([], ["--version"], ["--to"]) or number is None:
            return Answer(f"Write it as: /dream-restore {_RESTORE}")
        if not self._may_decide(call):
            return Answer(_OWNERS_WORD)
        service = self._service
        restore = service.restore_to if words[0] == "--to" else service.restore
        return Answer((await restore(number, self._scope(call))).text)

    def _scope(self, call: CommandCall) -> str:
        return self._scopes.serving(call.message, call.session.key, call.session.metadata)

    def _may_decide(self, call: CommandCall) -> bool:
        message = call.message
        return not is_group(self._scope(call)) or self._scopes.is_owner(
            message.channel, message.sender_id
        )


def _asker(message: InboundMessage) -> tuple[str, str]:
    """Who says a message and where, and what names it among theirs."""
    return f"{message.session_key}\n{message.channel}\n{message.sender_id}", message.event_id


def _unquoted(text: str) -> str:
    return text[1:-1].strip() if len(text) > 2 and text[0] == text[-1] == '"' else text.strip()


def _number(text: str) -> int | None:
    word = text.strip().removeprefix("#")
    return int(word) if word.isascii() and word.isdigit() and len(word) < 10 else None
