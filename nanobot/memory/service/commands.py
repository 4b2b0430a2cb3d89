"""The slash commands about memory, and the questions that `/forget` asks first.

A command works only on the memory that its message belongs to: the owner's, a person's own, or in a
group the group's. In a group, only the owner may change facts or forget."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import date, datetime, timedelta
from functools import partial
from typing import Annotated

import msgspec
from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import Address, InboundMessage, OutboundPart
from nanobot.bus.journal import LEARNING, sum_usage
from nanobot.bus.sql_journal import Journal
from nanobot.clock import Clock
from nanobot.commands import Answer, Command, CommandCall, CommandRegistry
from nanobot.errors import NanobotError
from nanobot.io import FENCE
from nanobot.memory.consolidation import MemoryConsolidator
from nanobot.memory.forget import Report
from nanobot.memory.scopes import OWNER, Scopes, is_group
from nanobot.memory.service import MemoryService, views
from nanobot.memory.service.conversations import (
    FileChanges,
    continue_conversation,
    discard_conversation,
)
from nanobot.memory.tools import Marks
from nanobot.security.paths import Place
from nanobot.session.manager import SessionManager
from nanobot.session.records import stem_of
from nanobot.text import shorten

QUESTION_LIFETIME = timedelta(minutes=10)
"""Time in which a question can be answered."""

REMEMBERED = timedelta(days=1)
"""Time after that in which it is kept without its text, so that a late answer is not taken for
talk."""

_LIMIT = 10_000_000
_ANSWERS = {"y": "--yes", "yes": "--yes", "n": "--no", "no": "--no"}


class ForgetQuestion(Struct, frozen=True):
    """The text to forget, its scope, the code that confirms it, and the message that asked.
    `is_last`: the person has sent nothing since. `is_newest`: nanobot hasn't, either. Without a
    text it is closed, or its answer is running (`is_begun`)."""

    code: str
    text: str
    scope: str
    erase: bool
    message: str
    until: Annotated[datetime, msgspec.Meta(tz=True)]
    is_last: bool = True
    is_newest: bool = True
    is_begun: bool = False

    def read_answer(self, message: InboundMessage) -> str:
        """Return the command that `message` means as an answer to this question, or ""."""
        answer = _ANSWERS.get(message.content.strip().rstrip(".!").lower())
        quote = message.reply_to
        is_meant = f"--yes {self.code}" in quote.text if quote else self.is_last
        if answer is None or not is_meant:
            return ""
        if quote or self.is_newest or self.is_begun:
            return f"/forget {answer} {self.code}"
        # The word may answer something newer: ask again, or take it for talk.
        erase = "--erase " if self.erase else ""
        return f'/forget {erase}"{self.text}"' if self.text and answer == "--yes" else ""


class ForgetQuestions:
    """The open questions of `/forget`, confirmed by a code, by `y` in a reply to the question, or
    by `y` as the next message if nanobot has sent nothing since.

    A question is valid for ten minutes, once, for the person and chat that were asked, until a
    newer one. For one more day, an answer gets the reply that it has expired. Each chat has a file
    in `folder`, so that a question outlasts a restart and a one-shot command, and other workers of
    a team know it. Its text is removed when it is closed, or when the answer begins: a crash runs
    the answer again, and it must not go to the model then. `new_code` makes codes, which are short
    and hard to guess."""

    def __init__(self, folder: Place, clock: Clock, new_code: Callable[[], str]) -> None:
        self._folder, self._clock, self._new_code = folder, clock, new_code
        self._path = str(folder.root.path / folder.relative)

    def ask(self, text: str, scope: str, message: InboundMessage, *, erase: bool) -> str:
        """Store the question to the sender of `message` and return its code. Raise
        `NanobotError`."""
        code, until = self._new_code(), self._clock.now() + QUESTION_LIFETIME
        question = ForgetQuestion(code, text, scope, erase, message.event_id, until)
        for entry in self._folder.entries() if self._folder.stat() else ():
            self._write(entry.name, self._read(entry.name))  # without expired questions
        file = _file_of(message.address)
        self._store(file, {**self._read(file), _asker(message): question})
        return code

    def confirm(self, code: str, message: InboundMessage) -> ForgetQuestion | None:
        """Return the question that `code` confirms, or None if it is unknown, closed, or another
        person's. `close` it afterwards. It has no text if it has expired or was confirmed
        before."""
        question = self._question_to(message)
        if question is None or question.code != code.strip().lower():
            return None
        if question.text:  # removed now: if a crash repeats this, it must not reach the model
            until = self._clock.now() + QUESTION_LIFETIME
            self._put(message, replace(question, text="", until=until, is_begun=True))
        return question

    def close(self, question: ForgetQuestion, message: InboundMessage) -> None:
        known = self._question_to(message)
        if known is not None and known.code == question.code:
            self._put(message, None)

    def interpret_reply(self, message: InboundMessage) -> str:
        """Return the command that `y` or `n` means, or "" if it answers no question. After other
        talk only a reply to the question answers it."""
        question = self._question_to(message)
        if question is None or question.message == message.event_id or not FENCE.is_open():
            return ""
        command = question.read_answer(message)
        is_talk = not message.content.lstrip().startswith("/")
        if not command and question.is_last and is_talk:
            self._put(message, replace(question, is_last=False))
        return command

    def note_reply(self, part: OutboundPart) -> None:
        """Record that nanobot sends something: a bare `y` may answer that now."""
        file = _file_of(Address(part.channel, part.chat_id, part.thread_id))
        known = self._read(file)
        new = {
            asker: one if one.message in part.event_ids else replace(one, is_newest=False)
            for asker, one in known.items()
        }
        if new != known and FENCE.is_open():
            self._write(file, new)

    def _question_to(self, message: InboundMessage) -> ForgetQuestion | None:
        return self._read(_file_of(message.address)).get(_asker(message))

    def _put(self, message: InboundMessage, question: ForgetQuestion | None) -> None:
        file, asker = _file_of(message.address), _asker(message)
        others = {of: one for of, one in self._read(file).items() if of != asker}
        self._write(file, {**others, asker: question} if question else others)

    def _read(self, file: str) -> dict[str, ForgetQuestion]:
        """Return the questions of a chat. Expired ones stay for a day, without text."""
        if not os.path.lexists(f"{self._path}/{file}"):  # called several times per message
            return {}
        place, now = self._folder.child(file), self._clock.now()
        try:
            content = place.read_bytes(_LIMIT)
            known = msgspec.convert(json.loads(content or b"{}"), dict[str, ForgetQuestion])
        except (NanobotError, ValueError, msgspec.ValidationError, RecursionError) as error:
            logger.warning("{}: dropped the open questions: {}", place.label, error)
            return {}
        return {
            asker: one if now < one.until else replace(one, text="", is_begun=False)
            for asker, one in known.items()
            if now < one.until + REMEMBERED
        }

    def _write(self, file: str, questions: Mapping[str, ForgetQuestion]) -> None:
        try:
            self._store(file, questions)
        except NanobotError as error:
            logger.warning("cannot save open questions: {}", error)

    def _store(self, file: str, questions: Mapping[str, ForgetQuestion]) -> None:
        place = self._folder.child(file)
        if questions:
            place.write_bytes(json.dumps(msgspec.to_builtins(questions)).encode())
        else:
            place.remove()


def _file_of(chat: Address) -> str:
    return f"{stem_of(chat.key)}.json"


def _asker(message: InboundMessage) -> str:
    return f"{message.session_key}\n{message.channel}\n{message.sender_id}"


_MEMORY = "[search TEXT | why TEXT | importance 1-5 TEXT | pending | accept N | drop N]"
_NOTE = "[TEXT | --undo]"
_RESTORE = "--list | --version N | --to N"
# Pending facts, by number or by code (see `PendingFact`).
_NAMES = r"(?:(?:\d{1,9}|[0-9a-f]{16})(?:[\s,]+|$))+"
_FEW = 5
_NOT_FOUND = (
    "There is no message to mark. To mark one, reply to it with /note. To write a note, add its "
    "text: /note The key is under the mat"
)
_OVER = "This question has expired. Nothing was forgotten. To try again, send /forget again."
_OWNERS_WORD = "In a group, only the owner can do this."


class MemoryCommands:
    """`/memory /forget /note /compact /discard /continue /usage /dream /dream-log /dream-restore`.

    `questions` are the open ones of `/forget`. `changes` are the files that turns changed.
    `has_effects` returns True for a tool that does more than read."""

    def __init__(
        self,
        *,
        service: MemoryService,
        consolidator: MemoryConsolidator,
        sessions: SessionManager,
        scopes: Scopes,
        journal: Journal,
        clock: Clock,
        questions: ForgetQuestions,
        changes: FileChanges,
        has_effects: Callable[[str], bool],
    ) -> None:
        self._service, self._consolidator = service, consolidator
        self._sessions, self._scopes, self._journal = sessions, scopes, journal
        self._clock, self._questions = clock, questions
        self._changes, self._has_effects = changes, has_effects
        self._marks = Marks(sessions, journal)

    def register(self, registry: CommandRegistry) -> None:
        registry.interpret_reply = self._questions.interpret_reply
        resume = partial(continue_conversation, sessions=self._sessions, scopes=self._scopes)
        discard = partial(
            discard_conversation,
            service=self._service,
            changes=self._changes,
            has_effects=self._has_effects,
        )
        restore = "Undo a memory change, or restore a version"
        drop = "End this conversation without remembering it"
        for command in (
            Command("memory", "Show, search, and change memory", self._memory, _MEMORY),
            Command("note", "Write a note, or mark a message to keep", self._note, _NOTE),
            Command(
                "forget", "Forget something, after confirmation", self._forget, "[--erase] TEXT"
            ),
            Command("compact", "Consolidate this conversation into memory", self._compact),
            Command("discard", drop, discard, "[--undo]"),
            Command("continue", "Continue another conversation here", resume, "[name]"),
            Command("usage", "Show token usage", self._usage),
            Command("dream", "Learn from conversations now", self._dream),
            Command("dream-log", "Show a memory change", self._log, "[version]"),
            Command("dream-restore", restore, self._restore, _RESTORE),
        ):
            ordered = command.name in {"compact", "discard", "continue"}
            registry.register(replace(command, ordered=ordered))

    async def _memory(self, call: CommandCall) -> Answer:
        word, _, rest = call.arguments.partition(" ")
        service, scope, rest = self._service, call.scope, rest.strip()
        match word.lower():
            case "":
                report = await service.overview(scope)
            case "search" if rest:
                report = await service.search(rest, scope, self._asker(call), limit=_FEW)
            case "why" if rest:
                report = await service.why(strip_quotes(rest), scope, self._asker(call))
            case "pending":
                report = await service.pending(scope)
            case "importance":
                return await self._importance(call, *rest.split(maxsplit=1))
            case "accept" if re.fullmatch(_NAMES, rest):
                return await self._decide(call, service.accept, rest)
            case "drop" if re.fullmatch(_NAMES, rest):
                return await self._decide(call, service.drop, rest)
            case _:
                return Answer(f"Usage: /memory {_MEMORY}")
        return Answer(report.text)

    async def _importance(self, call: CommandCall, level: str = "", fact: str = "") -> Answer:
        number = _number(level)
        if number is None or not fact:
            return Answer(
                "Usage: /memory importance 1-5 TEXT\nExample: /memory importance 5 penicillin"
            )
        if not self._may_decide(call):
            return Answer(_OWNERS_WORD)
        done = await self._service.set_importance(number, strip_quotes(fact), call.scope)
        return Answer(done.text)

    async def _decide(
        self, call: CommandCall, decide: Callable[..., Awaitable[Report]], names: str
    ) -> Answer:
        if not self._may_decide(call):
            return Answer(_OWNERS_WORD)
        await call.begin_effect()  # the numbers change afterwards
        codes = names.replace(",", " ").split()
        return Answer((await decide(codes=codes, scope=call.scope)).text)

    async def _note(self, call: CommandCall) -> Answer:
        if call.arguments in ("", "--undo"):
            return await self._keep(call, kept=not call.arguments)
        await call.begin_effect()
        # In a group, only the owner's notes are trusted.
        noted = await self._service.note(call.arguments, call.scope, self._asker(call))
        return Answer(noted.text)

    async def _keep(self, call: CommandCall, *, kept: bool) -> Answer:
        """Mark a message to keep, or remove its mark. A reaction gets no answer."""
        if self._may_decide(call):
            if not kept and call.message.reply_to is None:
                await call.begin_effect()  # afterwards another message is the last marked one
            found = await self._marks.mark(call, kept=kept)
            done = "Marked to keep" if kept else "No longer marked to keep"
            text = f"{done}: “{shorten(found.content, 80)}”" if found else _NOT_FOUND
        else:
            text = _OWNERS_WORD
        return Answer("" if call.message.delivery.unanswered else text)

    async def _forget(self, call: CommandCall) -> Answer:
        if not self._may_decide(call):
            return Answer(_OWNERS_WORD)
        word, _, rest = call.arguments.partition(" ")
        if word in ("--yes", "--no"):
            return await self._forget_now(call, rest, sure=word == "--yes")
        erase = word == "--erase"
        text = strip_quotes(rest if erase else call.arguments)
        if not text:
            return Answer("Add the text to forget, for example: /forget my shoe size")
        scope = call.scope
        if erase and scope != OWNER:
            return Answer("Only the owner can erase, because erasing affects all files.")
        plan = await self._service.plan_forgetting(text, scope, erase=erase)
        if not plan.data["found"]:
            return Answer(plan.text)
        await FENCE.wait_aside()
        code = self._questions.ask(text, scope, call.message, erase=erase)
        how = "To erase it permanently" if erase else "To forget it"
        return Answer(
            f"{plan.text}\n\n{how}, answer `y` or send `/forget --yes {code}` within ten minutes."
        )

    async def _forget_now(self, call: CommandCall, code: str, *, sure: bool) -> Answer:
        await FENCE.wait_aside()
        question = self._questions.confirm(code, call.message)
        if question is None:
            return Answer("This code is not valid. Send /forget again.")
        answer = "Nothing was forgotten."
        if sure and question.text:
            done = await self._service.forget(question.text, question.scope, erase=question.erase)
            answer = done.text
        elif not question.text and not question.is_begun:
            answer = _OVER
        elif sure:
            answer = "Forgetting was interrupted. Send the same /forget again to finish it."
        await FENCE.wait_aside()
        self._questions.close(question, call.message)
        return Answer(answer)

    async def _compact(self, call: CommandCall) -> Answer:
        return Answer(await self._consolidator.compact(call.session))

    async def _usage(self, call: CommandCall) -> Answer:
        today = self._clock.now().date()
        month, all_of_it = today.replace(day=1).isoformat(), call.scope == OWNER
        used = await self._journal.usage_by_day(date.min)
        key = "" if all_of_it else call.session.key
        rows = [
            ("this conversation", sum_usage(used, call.session.key)),
            ("today", sum_usage(used, key, today.isoformat())),
            ("this month", sum_usage(used, key, month)),
        ]
        learning = sum_usage(used, LEARNING, month) if all_of_it else None
        return Answer(views.usage_text(rows, learning))

    async def _dream(self, call: CommandCall) -> Answer:
        # Include the conversation that a `/new` has just ended.
        await self._consolidator.consolidate_sealed(call.session)
        return Answer((await self._service.dream(call.scope)).text)

    async def _log(self, call: CommandCall) -> Answer:
        number = _number(call.arguments)
        if call.arguments and number is None:
            return Answer("Usage: /dream-log [version], for example: /dream-log 12")
        return Answer((await self._service.log(number, call.scope)).text)

    async def _restore(self, call: CommandCall) -> Answer:
        words, scope = call.arguments.replace("=", " ").split(), call.scope
        if words in ([], ["--list"]):
            return Answer((await self._service.versions(scope)).text)
        number = _number(words[-1])
        if words[:-1] not in ([], ["--version"], ["--to"]) or number is None:
            return Answer(f"Usage: /dream-restore {_RESTORE}")
        if not self._may_decide(call):
            return Answer(_OWNERS_WORD)
        back = {"to" if words[0] == "--to" else "version": number}
        return Answer((await self._service.restore(scope=scope, **back)).text)

    def _asker(self, call: CommandCall) -> str:
        """Return the origin of the sender's words: none for the owner, and in a private chat."""
        return "" if self._may_decide(call) else f"person:{call.message.sender_id[:80]}"

    def _may_decide(self, call: CommandCall) -> bool:
        message = call.message
        return not is_group(call.scope) or self._scopes.is_owner(message.channel, message.sender_id)


def strip_quotes(text: str) -> str:
    text = text.strip()
    return text[1:-1].strip() if len(text) > 2 and text[0] == text[-1] == '"' else text


def _number(text: str) -> int | None:
    word = text.strip().removeprefix("#")
    return int(word) if word.isascii() and word.isdigit() and len(word) < 10 else None
