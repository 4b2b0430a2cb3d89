"""The operation `figures`: what a nanobot used and how quickly it answered, over days.

Days without a turn are there with zeros, so that what is drawn of them is true to time; beyond
`_MOST_BARS` days they are put together by weeks, which begin on Mondays."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta

from msgspec.structs import asdict

from nanobot.bus.journal import KEEP_DAYS, LEARNING, DayUsage, UsageTotals, in_currency, sum_usage
from nanobot.bus.sql_journal import Journal
from nanobot.channel import Operation
from nanobot.clock import Clock
from nanobot.errors import NanobotError

SPANS = (30, 90, 365)
"""Days that may be asked for."""
_MOST_BARS = 92
_MOST_CHATS = 20
_KINDS = ("turns", "prompt", "cached", "completion")


class Figures:
    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal, self._clock = journal, clock

    def table(self) -> Mapping[str, Operation]:
        return {"figures": self.figures}

    async def figures(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Over the last `days` (30, 90 or 365): `periods` and `chats` with turns, tokens and cost
        (None without prices), the chats that used most first and `others` together; `memory` is
        what memory's own calls used beside these; `times` in milliseconds by day, as far back as
        turns are kept; and how the queue is now."""
        days = arguments.get("days", SPANS[0])
        if days not in SPANS or not isinstance(days, int):
            raise NanobotError(f"figures are over {', '.join(map(str, SPANS))} days")
        today = self._clock.now().date()
        since = today - timedelta(days=days - 1)
        everything = await self._journal.used_by_day(since)
        used = [one for one in everything if one.session_key != LEARNING]
        chats = sorted(_sums(used, lambda one: one.session_key).items(), key=_most)
        learned = _counts(sum_usage(everything, LEARNING))
        times = await self._journal.times_by_day(max(since, today - timedelta(days=KEEP_DAYS - 1)))
        return {
            "days": days,
            "by": "day" if days <= _MOST_BARS else "week",
            "periods": self._periods(used, since, today, days),
            "chats": [{"session": key, **self._priced(sums)} for key, sums in chats[:_MOST_CHATS]],
            "others": self._priced(_total(chats[_MOST_CHATS:])),
            "more_chats": max(0, len(chats) - _MOST_CHATS),
            "total": self._priced(_total(chats)),
            "memory": self._priced(learned) | {"turns": 0},
            "times": [asdict(one) for one in times],
            "queue": asdict(await self._journal.counts()),
        }

    def _periods(
        self, used: Sequence[DayUsage], since: date, today: date, days: int
    ) -> list[dict[str, object]]:
        def begins(day: str) -> str:
            if days <= _MOST_BARS:
                return day
            at = date.fromisoformat(day)
            return (at - timedelta(days=at.weekday())).isoformat()

        sums = _sums(used, lambda one: begins(one.day))
        span = ((since + timedelta(days=at)).isoformat() for at in range((today - since).days + 1))
        starts = dict.fromkeys(map(begins, span))
        return [{"day": day, **self._priced(sums[day])} for day in starts]

    def _priced(self, sums: Counter[str]) -> dict[str, object]:
        tokens = {kind: sums[kind] for kind in _KINDS[1:]}
        cost = in_currency(sums["cost"]) if sums["priced"] else None
        return {"turns": sums["turns"], **tokens, "cost": cost}


def _sums(used: Iterable[DayUsage], key: Callable[[DayUsage], str]) -> dict[str, Counter[str]]:
    found = defaultdict[str, Counter[str]](Counter)
    for one in used:
        found[key(one)].update(_counts(one))
    return found


def _counts(one: DayUsage | UsageTotals) -> Counter[str]:
    """All numbers of it; `priced` is 0 if no price was known."""
    known = {"cost": one.cost or 0, "priced": int(one.cost is not None)}
    return Counter({**{kind: getattr(one, kind) for kind in _KINDS}, **known})


def _total(chats: Iterable[tuple[str, Counter[str]]]) -> Counter[str]:
    return sum((sums for _, sums in chats), Counter[str]())


def _most(chat: tuple[str, Counter[str]]) -> tuple[int, str]:
    return -chat[1]["prompt"] - chat[1]["completion"], chat[0]
