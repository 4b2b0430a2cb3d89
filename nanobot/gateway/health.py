"""Whether a nanobot works, judged from what can be seen of it. Pure.

Three words: `ok`; `degraded`, where something needs a person but the rest goes on (a channel is
off, a message failed, a backup did not work); `failing`, where messages are not taken in or not
kept. Only what a new process would mend, a poll or a journal that hangs, makes it `stuck` as well:
the watchdog is not fed then. `nanobot status`, `/health`, `/metrics` and the watchdog all go by
this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from nanobot.bus.sqlite_reports import QueueCounts
from nanobot.gateway.supervisor import ChannelState

Verdict = Literal["ok", "degraded", "failing"]

JOURNAL_SECONDS = 60.0
"""A disk that takes longer than this for one empty transaction hangs."""


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that is not as it should be. `stuck`: a new process would mend it."""

    level: Literal["degraded", "failing"]
    text: str
    hint: str = ""
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class JournalSeen:
    """How the journal answered: `waiting` seconds that it owes an answer, or why it refused."""

    waiting: float = 0.0
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """The verdict, and what it rests on, the worst first."""

    concerns: tuple[Concern, ...] = ()

    @property
    def state(self) -> Verdict:
        """The worst of it in a word."""
        levels = {concern.level for concern in self.concerns}
        return "failing" if "failing" in levels else "degraded" if levels else "ok"

    @property
    def stuck(self) -> bool:
        """Whether to start anew."""
        return any(concern.stuck for concern in self.concerns)

    def as_json(self) -> dict[str, object]:
        """For `status` and `/health`."""
        return {
            "state": self.state,
            "concerns": [
                {"level": concern.level, "text": concern.text, "hint": concern.hint}
                for concern in self.concerns
            ],
        }


def judge(
    channels: Sequence[ChannelState],
    now: float,
    journal: JournalSeen,
    queue: QueueCounts,
    others: Sequence[Concern] = (),
) -> Health:
    """The health at `now` (monotonic seconds), with what else is known to be wrong."""
    found = [*_of_journal(journal), *_of_channels(channels, now), *_of_queue(queue), *others]
    return Health(tuple(sorted(found, key=lambda concern: concern.level, reverse=True)))


def _of_journal(journal: JournalSeen) -> Iterator[Concern]:
    if journal.refusal:
        hint = "Make room on the disk, or see to it; messages wait at their platforms meanwhile."
        yield Concern("failing", f"the journal takes nothing: {journal.refusal}", hint)
    elif journal.waiting > JOURNAL_SECONDS:
        text = f"the journal has not answered for {journal.waiting:.0f} s"
        yield Concern("failing", text, "See to the disk.", stuck=True)


def _of_channels(channels: Sequence[ChannelState], now: float) -> Iterator[Concern]:
    for channel in channels:
        if channel.due is not None and channel.due < now and channel.state == "running":
            assert channel.heard_at is not None  # what is due was heard of before
            silent = now - channel.heard_at
            text = f"{channel.name}: nothing was heard from the platform for {silent:.0f} s"
            yield Concern("failing", text, "`nanobot logs` may say why.", stuck=True)
        elif channel.state == "off":
            hint = "Once that is mended: `nanobot agent -m /restart`."
            yield Concern("degraded", f"{channel.name} is off: {channel.detail}", hint)
        elif channel.state == "backoff":
            yield Concern("degraded", f"{channel.name} crashed: {channel.detail}")
        elif channel.state == "running" and channel.detail:
            yield Concern("degraded", f"{channel.name}: {channel.detail}")


def _of_queue(queue: QueueCounts) -> Iterator[Concern]:
    mend = "`nanobot queue list` shows them; `retry` and `drop` mend them."
    if queue.put_off:
        text = f"the model cannot be reached; messages that wait for it: {queue.put_off}"
        yield Concern("degraded", text, "`nanobot doctor` says more.")
    if queue.failed:
        yield Concern("degraded", f"messages that failed: {queue.failed}", mend)
    if queue.dead:
        yield Concern("degraded", f"parts of replies that cannot be delivered: {queue.dead}", mend)
