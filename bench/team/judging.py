"""What must be true when all was said: see `bench.team.__main__`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.staged import GIVEN_UP
from bench.team.model import EFFECTS, MARK
from bench.team.talk import Chat, Heard, Talk
from bench.transcript import faults_of_transcript

_EXCUSED = 3.0
"""Seconds after a send within which its worker's death excuses that it is made again."""
_TEMPORARY = "*.nanobot-tmp"


@dataclass
class Verdict:
    """What was found. `in_flight`: answers that came twice because their worker died, or was
    stopped, while they were being sent."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    in_flight: int = 0
    disordered: list[str] = field(default_factory=list)
    effects_twice: list[str] = field(default_factory=list)
    effects_asked: int = 0
    effects_missing: int = 0
    files: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    given_up: int = 0

    def figures(self) -> dict[str, object]:
        """As rows of a table."""
        return {
            "messages lost (target 0)": len(self.lost),
            "messages answered twice (target 0)": len(self.twice),
            "answers that came twice as they were being sent when their worker"
            " died or was stopped": self.in_flight,
            "chats out of order (target 0)": len(self.disordered),
            "effects asked for": self.effects_asked,
            "effects that happened twice (target 0)": len(self.effects_twice),
            "effects that were begun and cut off, and not repeated": self.effects_missing,
            "conversations that are not whole (target 0)": len(self.files),
            "requests that a platform refused (target 0)": len(self.violations),
            "messages given up, as three workers died over them": self.given_up,
        }

    @property
    def faults(self) -> list[str]:
        """All that is not as promised."""
        return [
            *self.lost, *self.twice, *self.disordered, *self.effects_twice, *self.files,
            *self.violations,
        ]  # fmt: skip


def judge(
    talk: Talk, shared: Path, ended: Sequence[float], away: Sequence[tuple[float, float]]
) -> Verdict:
    """Look at everything; no worker runs any more. `ended`: when workers were killed or stopped, or
    ended by themselves; `away`: when the database was."""
    verdict = Verdict()
    for chat in talk.chats:
        _judge_chat(verdict, chat, ended, away)
        if chat.sent:
            verdict.files += _file_faults(shared, chat)
    for platform in talk.platforms:
        verdict.violations += platform.violations()
    wishes = [wish for chat in talk.chats for wish in chat.wishes]
    verdict.effects_asked = 2 * len(wishes)
    for name, texts in (
        ("command", _texts((shared / "workspace").rglob(EFFECTS))),
        ("note", _texts((shared / "workspace").rglob("memory/2*.md"))),
    ):
        found = Counter(re.findall(r"\b[a-z]+\d+m\d+\b", texts))
        verdict.effects_twice += [
            f"the {name} of {wish} came {found[wish]} times" for wish in wishes if found[wish] > 1
        ]
        verdict.effects_missing += sum(not found[wish] for wish in wishes)
    verdict.files += [f"{path} was left" for path in shared.rglob(_TEMPORARY)]
    return verdict


def _judge_chat(
    verdict: Verdict,
    chat: Chat,
    ended: Sequence[float],
    away: Sequence[tuple[float, float]],
) -> None:
    verdict.given_up += (given := sum(GIVEN_UP in one.text for one in chat.heard))
    lost = [mark for mark in chat.sent if mark not in chat.answered]
    if len(lost) > given:
        verdict.lost += [f"{chat.name}: {mark} was not answered" for mark in lost]
    order: list[str] = []
    said: dict[str, Heard] = {}
    for one in chat.heard:
        if one.text in said:
            first = said[one.text]
            if _was_in_flight(first.at, one.at, ended, away):
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


def _was_in_flight(
    first: float, second: float, ended: Sequence[float], away: Sequence[tuple[float, float]]
) -> bool:
    """Whether a worker ended right after the first of two sends, before the second; the time does
    not count while the database could not be told that it was sent."""
    for end in ended:
        waited = sum(max(0.0, min(b, end) - max(a, first)) for a, b in away)
        if first - _EXCUSED <= end <= second and end - first <= _EXCUSED + waited:
            return True
    return False


def _file_faults(shared: Path, chat: Chat) -> Iterator[str]:
    try:
        wrong = faults_of_transcript(shared, chat.session, MARK, list(chat.sent))
    except OSError as error:
        wrong = [str(error)]
    yield from (f"{chat.session}: {one}" for one in wrong)


def _texts(paths: Iterable[Path]) -> str:
    return "\n".join(path.read_text() for path in paths)
