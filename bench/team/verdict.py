"""Invariants after all messages. See `bench.team.__main__`."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.team.model import EFFECTS, MARK
from bench.team.owner import Owner
from bench.team.talk import Chat, ReceivedMessage, Talk
from bench.transcript import faults_of_transcript, messages_of
from nanobot.agent.runner import INTERRUPTED
from nanobot.tools.shell.tools import CHANGED_MEANWHILE

_EXCUSED = 3.0
"""Seconds after a send within which its worker's death excuses a repetition."""
_TEMPORARY = "*.nanobot-tmp"
_NAME = re.compile(r"\b[a-z]+\d+m\d+\b")
"""Names of effects."""


@dataclass
class Verdict:
    """The findings. `in_flight`: answers that came twice because their worker died or was stopped
    while they were being sent."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    in_flight: int = 0
    disordered: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    effects_asked: int = 0
    effects_missing: int = 0
    effects_refused: int = 0
    questions: list[str] = field(default_factory=list)
    questions_asked: int = 0
    wishes_allowed: int = 0
    wishes_denied: int = 0
    files: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    given_up: int = 0

    def figures(self) -> dict[str, object]:
        """Return the rows of a table."""
        return {
            "messages lost (target 0)": len(self.lost),
            "messages answered twice (target 0)": len(self.twice),
            "answers that came twice as they were being sent when their worker"
            " died or was stopped": self.in_flight,
            "chats out of order (target 0)": len(self.disordered),
            "effects asked for": self.effects_asked,
            "effects that happened twice, or never, or though denied (target 0)": len(self.effects),
            "effects that were begun and cut off, and not repeated": self.effects_missing,
            "effects allowed and not run, as the folder had changed": self.effects_refused,
            "effects that the owner allowed": self.wishes_allowed,
            "effects that the owner denied": self.wishes_denied,
            "questions that this took": self.questions_asked,
            "questions that kept their buttons (target 0)": len(self.questions),
            "conversations that are not whole (target 0)": len(self.files),
            "requests that a platform refused (target 0)": len(self.violations),
            "messages given up, as three workers died over them": self.given_up,
        }

    @property
    def faults(self) -> list[str]:
        """Return the broken promises."""
        return [
            *self.lost, *self.twice, *self.disordered, *self.effects, *self.questions, *self.files,
            *self.violations,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Troubles:
    """Times when workers `ended`, killed or by themselves, and intervals when others were `paused`
    and the database was `away`, all of `time.monotonic`."""

    ended: Sequence[float]
    paused: Sequence[tuple[float, float]]
    away: Sequence[tuple[float, float]]

    def excuse(self, first: float, second: float) -> bool:
        """Check whether a message sent at both times may have been in flight.

        Either its worker ended or was stopped right after the first time, before it could record
        the send. Or it was stopped right before its own request, and sent it when it continued,
        while another worker had sent at the first time. Time without the database does not
        count."""
        for end in [*self.ended, *(began for began, _ in self.paused)]:
            waited = sum(max(0.0, min(b, end) - max(a, first)) for a, b in self.away)
            if first - _EXCUSED <= end <= second and end - first <= _EXCUSED + waited:
                return True
        return any(began <= first <= end <= second <= end + _EXCUSED for began, end in self.paused)


def judge(
    talk: Talk,
    owner: Owner,
    shared: Path,
    troubles: Troubles,
) -> Verdict:
    """Check everything after all workers have ended."""
    verdict = Verdict()
    done = {
        "exec": Counter(_NAME.findall(_texts((shared / "workspace").rglob(EFFECTS)))),
        "note": Counter(_NAME.findall(_texts((shared / "workspace").rglob("memory/2*.md")))),
    }
    for chat in talk.chats:
        _judge_chat(verdict, chat, troubles)
        if chat.sent:
            verdict.files += _file_faults(shared, chat)
            _judge_effects(verdict, chat, owner, shared, done)
    for platform in talk.platforms:
        verdict.violations += platform.violations()
    verdict.files += [f"{path} was left" for path in shared.rglob(_TEMPORARY)]
    verdict.files += [
        f"{path} is not whole"
        for path in (shared / "media").iterdir()
        if not hashlib.sha256(path.read_bytes()).hexdigest().startswith(path.stem)
    ]
    verdict.questions_asked = len(owner.asked)
    verdict.questions = [f"question {code} has its buttons" for code in owner.open]
    verdict.wishes_allowed = sum(owner.allows.values())
    verdict.wishes_denied = len(owner.allows) - verdict.wishes_allowed
    return verdict


def _judge_effects(
    verdict: Verdict, chat: Chat, owner: Owner, shared: Path, done: Mapping[str, Counter[str]]
) -> None:
    """Compare the effects with the conversation: once for a call with a result, once or never for
    an interrupted call, and never for a denied one."""
    results: dict[tuple[str, str], str] = {}
    tools: dict[str, tuple[str, str]] = {}
    for message in messages_of(shared, chat.session):
        for call in message.tool_calls:
            tools[call.id] = call.name, "".join(_NAME.findall(call.arguments))
        if message.role == "tool":
            results[tools[message.tool_call_id]] = message.content
    for mark, verb in chat.wishes.items():
        name = f"{chat.name}{mark}"
        for tool in ("exec",) if verb == "ask" else ("exec", "note"):
            verdict.effects_asked += 1
            times, result = done[tool][name], results.get((tool, name), "none")
            wanted = 1
            if verb == "ask" and not owner.allows.get(name):
                wanted = 0
            elif verb == "ask" and CHANGED_MEANWHILE in result:
                # A stopped or killed worker may leave a program that still changes the person's
                # folder, and the approval is for the earlier state.
                wanted = 0
                verdict.effects_refused += 1
            elif result == INTERRUPTED or mark not in chat.answered:
                wanted = min(times, 1)
                verdict.effects_missing += not times
            if times != wanted:
                verdict.effects.append(f"{tool} of {name} came {times} times: {result[:100]!r}")


def _judge_chat(
    verdict: Verdict,
    chat: Chat,
    troubles: Troubles,
) -> None:
    verdict.given_up += chat.given_up
    verdict.lost += [f"{chat.name}: {mark} was not answered" for mark in chat.waits]
    order: list[str] = []
    said: dict[str, ReceivedMessage] = {}
    for one in chat.heard:
        if one.text in said:
            first = said[one.text]
            if troubles.excuse(first.at, one.at):
                verdict.in_flight += 1
            else:
                after = one.at - first.at
                verdict.twice.append(f"{chat.name}: {one.marks} came twice, {after:.1f} s apart")
            continue
        said[one.text] = one
        for mark in one.marks:
            if mark in order:
                verdict.twice.append(f"{chat.name}: {mark} was answered in two ways")
            order.append(mark)
    if order != sorted(order, key=lambda mark: int(mark[1:])):
        verdict.disordered.append(f"{chat.name} heard {order}")


def _file_faults(shared: Path, chat: Chat) -> Iterator[str]:
    try:
        wrong = faults_of_transcript(shared, chat.session, MARK, list(chat.sent))
        count = sum(len(one.media) for one in messages_of(shared, chat.session))
    except OSError as error:
        wrong, count = [str(error)], 0
    if count != len(chat.files):
        wrong.append(f"it has {count} files, not {len(chat.files)}")
    yield from (f"{chat.session}: {one}" for one in wrong)


def _texts(paths: Iterable[Path]) -> str:
    return "\n".join(path.read_text() for path in paths)
