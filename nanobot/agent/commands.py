"""Slash commands about the conversation itself."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import dropwhile, islice
from typing import cast, get_args

from msgspec.structs import replace

from nanobot.agent.intake import KEPT, strip_marks
from nanobot.agent.loop import AgentLoop
from nanobot.agent.turn_state import AgentParts
from nanobot.bus.events import (
    NANOBOT,
    TERMINAL,
    Button,
    InboundMessage,
    Media,
    MediaKind,
    Notice,
)
from nanobot.commands import Answer, Command, CommandCall, CommandRegistry
from nanobot.errors import NanobotError
from nanobot.messages import ATTACHED, Attachment, Message, attribute_message, speaker_in
from nanobot.providers.port import Effort
from nanobot.providers.retry import ServedModels
from nanobot.session.titles import LONGEST_TITLE
from nanobot.text import close_matches, one_line, pluralize, shorten
from nanobot.tools.files import Outcome, UndoLog

_MOST_MODEL_BUTTONS, _MOST_MODELS_LISTED = 8, 40
_IN_TERMINAL = (
    "/resume [WORDS] — Choose another conversation",
    "!COMMAND — Short for /run",
    "@FILE — Attach a file",
    "Ctrl-O — Open a long paste",
)
_HISTORY_DEFAULT = 10
_HISTORY_MOST, _HISTORY_COUNT = 100, re.compile("0*([1-9][0-9]?|100)")
_HISTORY_CHARACTERS = 400
_EFFORTS = "none | low | medium | high | default"
_UNDONE = frozenset({"write_file", "edit_file"})
"""Tools whose effects are listed by file."""


StopsWork = Callable[[str], Awaitable[int]]
"""Function that ends the background work of a conversation, given by its key, and returns the
number of ended tasks."""


class ConversationCommands:
    """`/help /new /stop /status /restart /history /title /undo /retry /edit /model /think`.

    With `--turn ID`, which the page and terminal send, `/undo`, `/retry` and `/edit` are about an
    earlier turn and all that followed.

    `stops` are the other kinds of work that `/stop` ends, each with its noun (`subagent`) or "".
    `has_effects` returns True for a tool that does more than read. `status` returns the text for
    `/status`. The selectable models are the `named` ones of the settings and
    the server's (`served`, None for the offline model)."""

    def __init__(
        self,
        parts: AgentParts,
        loop: AgentLoop,
        *,
        stops: Sequence[tuple[str, StopsWork]] = (),
        undo: UndoLog,
        has_effects: Callable[[str], bool],
        status: Callable[[CommandCall], Awaitable[str]],
        restart: Callable[[], None],
        default_model: str,
        named: Sequence[str] = (),
        served: ServedModels | None,
    ) -> None:
        self._loop, self._stops, self._undo_log = loop, stops, undo
        self._has_effects = has_effects
        self._status_text, self._request_restart = status, restart
        self._default_model, self._served, self._parts = default_model, served, parts
        self._named = tuple(named)

    def register(self, registry: CommandRegistry) -> None:
        async def help_text(call: CommandCall) -> Answer:
            # Chats turn names into links, but only "/dream" of "/dream-log". "_" works too.
            dash = "-" if call.message.channel == TERMINAL else "_"
            lines = ["Send me a message, or use one of these commands:", ""]
            for one in registry.list_for(call.message):
                called = f"/{one.name.replace('-', dash)} {one.usage}".strip()
                lines.append(f"{called} — {one.summary}")
            lines += _IN_TERMINAL if call.message.channel == TERMINAL else ()
            return Answer("\n".join(lines))

        for command in (
            Command("help", "List the commands", help_text),
            Command(
                "new",
                "Start a new conversation (memory is kept)",
                self._new,
                ordered=True,
            ),
            Command("stop", "Stop all running work", self._stop, immediate=True),
            Command("status", "Show the status", self._status, immediate=True),
            Command("history", "Show the latest messages", self._history, usage="[n]"),
            Command("title", "Set the title of this conversation", _title, "TEXT", ordered=True),
            Command("undo", "Undo the last turn and its file changes", self._undo, ordered=True),
            Command("retry", "Undo the last turn and run it again", self._retry, ordered=True),
            Command(
                "edit",
                "Replace your last message and run it again",
                self._edit,
                "TEXT",
                ordered=True,
            ),
            Command(
                "model", "Show or switch this conversation's model", self._model, "[name]", "owner"
            ),
            Command("think", "Show or set the thinking effort", self._think, _EFFORTS, "owner"),
            Command("restart", "Restart nanobot", self._restart, "", "owner", immediate=True),
        ):
            registry.register(command)

    async def _new(self, call: CommandCall) -> Answer:
        call.session.clear(call.entry_id)

        def seal() -> None:
            sealing = self._parts.consolidator.consolidate_sealed(call.session)
            self._parts.awaited_background.start(sealing, name=f"seal {call.session.key}")

        return Answer("New conversation started.", afterwards=seal)

    async def stop(self, session_key: str, before: int) -> str:
        """Stop all work of a conversation and drop the messages before inbox entry `before`. Return
        a report, or "" if there was nothing to stop."""
        ran, waited = await self._loop.stop(session_key, before)
        counts = [(await stop(session_key), noun) for noun, stop in self._stops]
        ended = [pluralize(count, noun) for count, noun in counts if count and noun]
        if not ran and not waited and not any(count for count, _ in counts):
            return ""
        aside = f" {pluralize(waited, 'pending message')} dropped." if waited else ""
        others = f" {', '.join(ended)} stopped." if ended else ""
        return f"Stopped.{aside}{others}"

    async def _stop(self, call: CommandCall) -> Answer:
        stopped = await self.stop(call.message.session_key, call.entry_id)
        return Answer(stopped or call.outcome or "Nothing is running.")

    async def _status(self, call: CommandCall) -> Answer:
        return Answer(await self._status_text(call))

    async def _history(self, call: CommandCall) -> Answer:
        wanted = call.arguments or str(_HISTORY_DEFAULT)
        if not _HISTORY_COUNT.fullmatch(wanted):
            return Answer(f"Usage: /history N, with N from 1 to {_HISTORY_MOST}")
        spoken = (m for m in reversed(call.session.messages) if m.role != "tool" and m.content)
        lines = []
        for one in islice(spoken, int(wanted)):
            stamp = f"{one.timestamp:%Y-%m-%d %H:%M}" if one.timestamp else "?"
            author, text = attribute_message(one.role, one.name, one.content, one.origin, "")
            lines.append(f"[{stamp}] {author}: {shorten(text, _HISTORY_CHARACTERS)}")
        return Answer("\n".join(reversed(lines)) or "This conversation is empty.")

    async def _undo(self, call: CommandCall) -> Answer:
        removed, files = await self._take_back(call)
        question = next((message.content for message in _questions(removed)), "")
        lines = [f"Undid the last turn (“{shorten(question, 80)}”)."]
        lines += [f"- {path}: {outcome}" for path, outcome in files] or ["No files were changed."]
        return Answer("\n".join(lines))

    async def _retry(self, call: CommandCall) -> Answer:
        return await self._run_again(call, "")

    async def _edit(self, call: CommandCall) -> Answer:
        text = _split_turn(call.arguments)[1]
        if not text:
            return Answer("Add the new text of your last message: /edit TEXT")
        if self._parts.commands.match(text):
            raise NanobotError("You can't replace a message by a command.")
        return await self._run_again(call, strip_marks(text) if call.message.is_group else text)

    async def _run_again(self, call: CommandCall, text: str) -> Answer:
        """Undo the last turn, or the chosen one and all later ones, and answer its messages again,
        with a `text` in place of the last one."""
        own = self._parts.intake.text_of(call.message).origin
        removed, files = await self._take_back(call, again=True, asker=own if text else None)
        turn_id = removed[0].turn_id
        turn = [one for one in removed if one.turn_id == turn_id]
        questions = [*_questions(turn)]
        if text:
            questions[-1] = _with_text(questions[-1], text, own)
        earlier = next((one.replaces for one in turn if one.replaces), ())
        again = self._build_repetition(call, questions, (*earlier, turn_id))
        left = self._describe_effects(removed, files)

        def report() -> None:
            place = (call.message.channel, call.message.chat_id)
            self._parts.screen.show_progress(Notice(*place, left, call.message.thread_id))

        return Answer(
            "", republish=(again,), replaces_turn=turn_id, afterwards=report if left else None
        )

    def _build_repetition(
        self, call: CommandCall, questions: Sequence[Message], replaces: tuple[str, ...]
    ) -> InboundMessage:
        """Return the message that asks the questions of removed turns again."""
        message, asker = call.message, "person" if questions[0].from_person else "report"
        origins = {message.origin for message in questions}
        foreign = sorted(origins - {"", ATTACHED})
        mark = foreign[0] if foreign else max(origins)  # the least trusted of them
        return replace(
            message,
            content="\n".join(message.content for message in questions),
            media=tuple(_as_media(one) for message in questions for one in message.media),
            reply_to=None,
            event_id=f"retry:{call.entry_id}",
            timestamp=self._parts.clock.now(),
            delivery=replace(message.delivery, answers=message.event_id, replaces=replaces),
            origin=replace(message.origin, mark=mark, initiator=asker),
        )

    def _describe_effects(
        self, removed: Sequence[Message], files: Sequence[tuple[str, Outcome]]
    ) -> str:
        """Return which effects of a removed turn were undone, and which stay, or "" if it had
        none."""
        lines = [f"- {path}: {outcome}" for path, outcome in files]
        names = (call.name for message in removed for call in message.tool_calls)
        effects = Counter(one for one in names if one not in _UNDONE and self._has_effects(one))
        lines += [f"- {name} ({times}): not undone" for name, times in effects.items()]
        return "\n".join(["Effects of the replaced turn:", *lines]) if lines else ""

    async def _take_back(
        self, call: CommandCall, *, again: bool = False, asker: str | None = None
    ) -> tuple[list[Message], list[tuple[str, Outcome]]]:
        """Stage the removal of the last turn, or of the chosen one and all later ones, and restore
        their files. Raise `NanobotError` if that is impossible, with `again` also if the message to
        run again is unknown, and with `asker`, the origin of a person's words, if it is not
        theirs."""
        async with call.session.removal_lock:
            turns = _find_turns(call.session.messages, _split_turn(call.arguments)[0])
            answered = _questions([m for m in call.session.messages if m.turn_id == turns[0]])
            if again and not answered:
                raise NanobotError(
                    "The message that started this turn has been moved to memory. Resend it."
                )
            if asker is not None and not _is_by(answered[-1], asker):
                raise NanobotError("This turn did not answer a message of yours.")
            removed = [one for turn_id in turns for one in call.session.retract(turn_id)]
        files = list[tuple[str, Outcome]]()
        for turn_id in reversed(turns):
            files += await asyncio.to_thread(self._undo_log.revert, turn_id)
        return removed, files

    async def _model(self, call: CommandCall) -> Answer:
        name = next(iter(call.arguments.split()), "")
        if name not in {"default", self._default_model, *self._named}:
            return await self._choose_model(call, name)
        name = self._default_model if name == "default" else name
        call.session.set_metadata(model=None if name == self._default_model else name)
        return Answer(f"This conversation now uses {name}.")

    async def _choose_model(self, call: CommandCall, name: str) -> Answer:
        """Choose a model of the server. Without a name, show all models."""
        if name and self._served is None:
            return Answer(
                "Only the built-in offline model is available. To connect another model, run "
                "`nanobot onboard` in a terminal, then send /restart."
            )
        current = str(call.session.metadata.get("model", self._default_model))
        served = await self._served.names() if self._served else ()
        names = (*self._named, *served)
        if not name:
            text = f"This conversation uses {current}. To switch, send /model NAME."
            return _offer(text, [one for one in names if one != current])
        if served and not {name, f"{name}:latest"} & {*served}:  # Ollama omits that tag
            return _offer_similar(name, names, current)
        call.session.set_metadata(model=name)
        doubt = "" if served else " The server doesn't list models, so the name was not checked."
        return Answer(f"This conversation now uses {name}.{doubt}")

    async def _think(self, call: CommandCall) -> Answer:
        wanted = call.arguments.strip().lower()
        if not wanted:
            effort = call.session.metadata.get("effort") or "default"
            choices = (one for one in (*get_args(Effort), "default") if one != effort)
            buttons = tuple(Button(one, f"/think {one}") for one in choices)
            return Answer(f"Thinking effort: {effort}.", buttons)
        if wanted not in {"default", *get_args(Effort)}:
            return Answer(f"Usage: /think {_EFFORTS}")
        call.session.set_metadata(effort=None if wanted == "default" else wanted)
        return Answer(f"Thinking effort: {wanted}.")

    async def _restart(self, _: CommandCall) -> Answer:
        text = "Restarting. Unfinished work will continue afterwards."
        return Answer(text, afterwards=self._request_restart)


def _offer_similar(name: str, names: Sequence[str], current: str) -> Answer:
    """Offer the models whose name contains an unknown `name` in any case, prefix matches first.
    Raises `NanobotError` if there is none."""
    part = name.lower()
    if found := [one for one in names if part in one.lower()]:
        found.sort(key=lambda one: (not one.lower().startswith(part), one))
        return _offer(f"There is no model named {name}.", found, part=name)
    near = " or ".join(close_matches(name, names, n=3, cutoff=0.0))
    raise NanobotError(
        f"The model server doesn't have {name}. Did you mean {near}? This conversation"
        f" still uses {current}."
    )


def _offer(text: str, others: Sequence[str], *, part: str = "") -> Answer:
    """Offer models: a few as buttons, more as a list, too many with a way to narrow them."""
    if not others:
        return Answer(text)
    if len(others) > (_MOST_MODELS_LISTED if part else _MOST_MODEL_BUTTONS):
        some, count = ", ".join(others[:3]), len(others)
        more = "more of the name" if part else "`/model` with part of a name"
        found = f"{count} names contain “{part}”" if part else f"{count} others are available"
        return Answer(f"{text} {found}, such as {some}. To narrow the list, send {more}.")
    listed = "\n".join(f"- {name}" for name in others)
    shown = others if len(others) <= _MOST_MODEL_BUTTONS else ()
    buttons = tuple(Button(name, f"/model {name}") for name in shown)
    return Answer(f"{text} Available models:\n\n{listed}", buttons)


async def _title(call: CommandCall) -> Answer:
    title = one_line(call.arguments, LONGEST_TITLE)
    call.session.set_metadata(title=title or None)
    return Answer(f"The title is now “{title}”." if title else "The title has been removed.")


def _split_turn(arguments: str) -> tuple[str, str]:
    """Return the turn in `--turn ID TEXT`, or "", and the text."""
    flag, _, rest = arguments.partition(" ")
    if flag != "--turn":
        return "", arguments
    turn_id, *text = rest.split(maxsplit=1) or [""]
    return turn_id, "".join(text)


def _find_turns(messages: Sequence[Message], turn_id: str) -> list[str]:
    """Return the id of the last ended turn, or those of a turn and all later ones. Raise
    `NanobotError` if they can't be undone."""
    ended = (one.turn_id for one in reversed(messages) if one.ends_turn)
    turns = list(islice(ended, 1))
    if turn_id:
        every = dict.fromkeys(one.turn_id for one in messages)
        turns = list(dropwhile(lambda one: one != turn_id, every))
    if not turns:
        raise NanobotError("There is nothing to undo in this conversation.")
    if "" in turns:
        raise NanobotError("The last messages were written by another program and can't be undone.")
    return turns


def _is_by(message: Message, asker: str) -> bool:
    """Return True if a message is of the person whose words have the origin `asker`."""
    spoken = {asker} if asker else {"", ATTACHED, "forwarded"}
    return message.from_person and message.origin in spoken


def _with_text(message: Message, text: str, own: str) -> Message:
    """Replace the text of a person's message. Its files and the speaker's name stay."""
    speaker = speaker_in(message.content)
    content = f"[from {speaker}]\n{text}" if speaker else text
    return replace(message, content=content, origin=own or (ATTACHED if message.media else ""))


def _as_media(file: Attachment) -> Media:
    kind = cast("MediaKind", file.kind if file.kind in get_args(MediaKind) else "document")
    return Media(KEPT + file.file, kind, file.mime, file.name, file.size)


def _questions(turn: Sequence[Message]) -> Sequence[Message]:
    """Return the messages that a turn answered: a person's, or the subagent report that began
    it."""
    typed = [message for message in turn if message.from_person]
    if typed or not turn:
        return typed
    first = turn[0]
    by_nanobot = first.origin == NANOBOT or first.origin.startswith("helper:")
    is_report = first.role == "user" and by_nanobot and not first.ends_turn
    return turn[:1] if is_report else ()
