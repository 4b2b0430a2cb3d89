"""Choose the facts for a scope's prompts if there is no room for all of them.

The most important facts always come first. For the others, importance counts, plus at most one step
each for how recently a fact was written and how often it was looked up (`weight_of`). Search finds
the rest. A choice depends on the files, the day, and the records from before that day, so it is the
same for all conversations of a day, even after a restart.

The versions have the day on which a fact was written. Reading them is slow, so Dream records it
(`refresh`). A fact without a record from before today counts as new. A fact was looked up if the
question of a search or of `/memory why` led to it: the model needs no look-up for facts in the
prompt. Nothing is recorded while a file takes less than half its share.

Chosen facts keep their order in the file, under their headings. A fact is a line with its indented
lines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from math import exp2

import msgspec
from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.state import Document, InvalidDocument, StateStore
from nanobot.errors import NanobotError
from nanobot.memory.documents import LONG_TERM, PERSONAL
from nanobot.memory.guard import without_list_mark
from nanobot.memory.importance import HIGHEST, Importance, importance_of, without_importance
from nanobot.memory.line_changes import is_heading, split
from nanobot.memory.similarity import words
from nanobot.memory.store import MemoryStore
from nanobot.providers.port import estimate_tokens
from nanobot.text import pluralize

PERSON = PERSONAL[0]

_HALF_LIFE = 90.0  # days after which a write or look-up counts half
_DAYS = 8  # maximum number of days with look-ups that count
_NOTES_SHARE = 4
MOST_SHOWN = 8_000
"""Maximum tokens of a file in the prompt of a model that learns."""
_LINE_END = 1.5  # tokens per line that the estimate of a line omits
_RELATION = 20.0  # weight of a line whose words are all in the texts: more than everything else
_NOT_SHOWN = "({:,} more lines of the file are not shown; they are kept)"
_CUT = (
    "[cut here to save room: read_file memory/MEMORY.md, and the notes of each day next to it, for"
    " the rest]"
)
_MORE = (
    "({more} in {path}: here are the most important, the newest and those looked up most;"
    " search_memory finds the others)"
)


class FactUse(Struct, frozen=True, array_like=True):
    """The day on which a fact was written (None if unknown), its last days with look-ups, and the
    day on which `written` was recorded."""

    written: date | None = None
    used: tuple[date, ...] = ()
    noted: date | None = None


Uses = Mapping[str, FactUse]
"""By `_key`."""


class FactUses(Document[Mapping[str, Uses]]):
    """The document `facts`, by scope. An unreadable one counts as empty. Blocks."""

    def __init__(self, store: StateStore) -> None:
        super().__init__(
            store, "facts", _decode_uses, msgspec.json.encode, {}, "It will be rebuilt."
        )


def _decode_uses(content: bytes) -> dict[str, dict[str, FactUse]]:
    try:
        return msgspec.json.decode(content, type=dict[str, dict[str, FactUse]])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidDocument(str(error)) from None


def weight_of(level: int, use: FactUse, today: date) -> float:
    """Return the weight of a fact with this importance. Pure."""
    age = (today - use.written).days if use.written and use.noted != today else 0
    used = [day for day in use.used if day < today][-_DAYS:]  # today counts from tomorrow on
    looked_up = sum(_decay((today - day).days) for day in used)
    always = 10.0 if level == HIGHEST else 0.0
    return always + level + _decay(age) + 1 - exp2(-looked_up / 2)


def _decay(days: int) -> float:
    return exp2(-max(days, 0) / _HALF_LIFE)


class Recall:
    """Selection for the scope of `store`, within its files' shares of a prompt of `budget` tokens.
    If `uses` is None, nothing is recorded."""

    def __init__(self, store: MemoryStore, scope: str, budget: int, uses: FactUses | None) -> None:
        self._store, self._scope, self._uses = store, scope, uses
        self._chosen: dict[str, tuple[list[object], str]] = {}
        self._shares = {LONG_TERM: min(16_000, budget // 4), PERSON: min(4_000, budget // 8)}

    def basis(self) -> tuple[object, ...]:
        """Return all that the parts depend on, except the memory's text."""
        return self._read_uses(), self._store.today()

    def memory_part(self) -> str:
        """Return the `# Memory` part of a system prompt, or "" if memory is empty."""
        return self._choose_once(LONG_TERM, self._render_memory)

    def _render_memory(self) -> str:
        whole, share = self._store.get_memory_context(), self._shares[LONG_TERM]
        size = estimate_tokens(whole)
        if size <= share:
            return whole
        try:
            facts = self._store.read_learned(LONG_TERM)
            notes = min(size - estimate_tokens(facts), share // _NOTES_SHARE)
            whole = self._store.get_memory_context(self._render_selection(LONG_TERM, share - notes))
        except NanobotError as error:  # the text then has a short error instead
            logger.warning("{}: cannot choose facts for the prompt: {}", LONG_TERM, error)
        if estimate_tokens(whole) > share:
            whole = cut_at_line(whole, share - estimate_tokens(_CUT), _CUT)
        return whole

    def person_part(self) -> str:
        """Return the part for USER.md. Raise `NanobotError`."""
        return self._choose_once(PERSON, self._render_person)

    def _render_person(self) -> str:
        text, share = self._store.read_learned(PERSON), self._shares[PERSON]
        return text if estimate_tokens(text) <= share else self._render_selection(PERSON, share)

    def select_related(self, path: str, about: Iterable[str], budget: int = MOST_SHOWN) -> str:
        """Return a file for a model that learns, without marks: all of it, or the facts with the
        most words of the texts `about` and then the weightiest. The model's changes fit the
        file."""
        text = without_importance(self._store.read(path))
        if estimate_tokens(text) <= budget:
            return text
        said, weight = words("\n".join(about)), self._weigher(path)

        def relation(line: str) -> float:
            own = words(line)
            return _RELATION * len(own & said) / max(1, len(own)) + weight(line)

        selection = self._select(path, budget, relation)
        return f"{selection.text}\n\n{_NOT_SHOWN.format(selection.left_out)}\n"

    def levels(self, path: str) -> dict[str, int]:
        """Return the importance of each line of a file that has one, by the line without it."""
        lines = split(self._store.read(path))
        marked = ((line, found) for line in lines if (found := importance_of(line)))
        return {without_importance(line).strip(): found.level for line, found in marked}

    def standing_of(self, path: str, line: str) -> str:
        """Return a line for people: whether a fact is in the prompt, and why. Empty for other kinds
        of files. Blocks."""
        if path not in self._shares:
            return ""
        use = self._read_uses().get(_key(line), FactUse())
        importance = importance_of(line) or Importance(reason="default")
        reason = f" ({importance.reason})" if importance.reason else ""
        why = [f"importance {importance.level}{reason}"]
        if ages := self._store.fact_ages(path):
            days = ages.get(without_importance(line).strip(), 0)
            why.append(f"written {pluralize(days, 'day')} ago" if days else "written today")
        if use.used:
            why.append(f"looked up on {pluralize(len(use.used), 'day')}, last on {max(use.used)}")
        is_in = without_importance(line).strip() in self._read_prompt_lines(path)
        where = "in the prompt" if is_in else "not in the prompt (no room), but found by search"
        return f"{where}: {', '.join(why)}"

    def count_left_out(self, path: str) -> int:
        """Count the facts of a file that have no room in the prompt. Blocks."""
        if path not in self._shares:
            return 0
        shown, facts = self._read_prompt_lines(path), self._store.facts(path)
        return sum(without_importance(fact) not in shown for fact in facts)

    def _read_prompt_lines(self, path: str) -> set[str]:
        text = self.memory_part() if path == LONG_TERM else self.person_part()
        return {line.strip() for line in split(text)}

    def note_use(self, lines: Iterable[str]) -> None:
        """Record that these facts were looked up today. Failures are only logged. Blocks."""
        today, keys = self._store.today(), {_key(line) for line in lines}
        if not keys or not self._list_outgrown():
            return

        def record(known: Uses) -> Uses:
            new = {**known}
            for key in keys:
                use = known.get(key, FactUse())
                days = (*dict.fromkeys((*use.used, today)),)
                new[key] = replace(use, used=days[-_DAYS - 1 :])
            return new

        self._change(record)

    def refresh(self) -> None:
        """Record when each fact was written, and drop the records of others. Blocks."""
        today, written = self._store.today(), dict[str, date]()
        try:
            for path in self._list_outgrown():
                ages = self._store.fact_ages(path)
                for line in map(without_importance, self._store.facts(path)):
                    written[_key(line)] = today - timedelta(days=ages.get(line, 0))
        except NanobotError as error:
            logger.warning("{}: cannot record the ages of facts: {}", self._scope, error)
            return

        def update(known: Uses) -> Uses:
            found = {key: known.get(key, FactUse()) for key in written}
            return {
                key: use if use.written else replace(use, written=written[key], noted=today)
                for key, use in found.items()
            }

        self._change(update)

    def _change(self, change: Callable[[Uses], Uses]) -> None:
        if self._uses is None:
            return
        scope = self._scope

        def replace_own(scopes: Mapping[str, Uses]) -> Mapping[str, Uses]:
            new = change(scopes.get(scope, {}))
            others = {name: known for name, known in scopes.items() if name != scope}
            return {**others, scope: new} if new else others

        try:
            self._uses.change(replace_own)
        except NanobotError as error:
            logger.warning("{}: cannot record which facts were looked up: {}", scope, error)

    def _read_uses(self) -> Uses:
        try:
            return self._uses.value.get(self._scope, {}) if self._uses else {}
        except NanobotError as error:
            logger.warning("{}: cannot read which facts were looked up: {}", self._scope, error)
            return {}

    def _list_outgrown(self) -> list[str]:
        """Return the files that take more than half their share."""
        found = []
        for path, share in self._shares.items():
            with suppress(NanobotError):  # an unreadable file is in no prompt
                if estimate_tokens(self._store.read_learned(path)) > share // 2:
                    found.append(path)
        return found

    def _weigher(self, path: str) -> Callable[[str], float]:
        known, today = self._read_uses(), self._store.today()
        levels = {_key(line): level for line, level in self.levels(path).items()}
        usual, unused = Importance().level, FactUse()

        def weight(line: str) -> float:
            key = _key(line)
            return weight_of(levels.get(key, usual), known.get(key, unused), today)

        return weight

    def _select(self, path: str, budget: int, weight: Callable[[str], float]) -> Selection:
        text = self._store.read_learned(path)
        facts = {without_importance(fact) for fact in self._store.facts(path)}
        return select_facts(text, facts, budget, weight)

    def _render_selection(self, path: str, budget: int) -> str:
        """Return as many facts of a file as fit, and a note on the others."""
        room = budget - 2 * estimate_tokens(_MORE)  # includes the blank lines
        selection = self._select(path, room, self._weigher(path))
        if not selection.left_out:
            return selection.text
        more = pluralize(selection.left_out, "more fact is", "more facts are")
        return f"{selection.text}\n\n{_MORE.format(more=more, path=path)}"

    def _choose_once(self, path: str, choose: Callable[[], str]) -> str:
        """Return the last choice while the texts, the uses and the day are the same."""
        reasons: list[object] = [self._read_uses(), self._store.today()]
        with suppress(NanobotError):
            reasons += map(self._store.read, (path, *self._store.recent_note_paths()))
        known, text = self._chosen.get(path, ([], ""))
        if known != reasons:
            text = choose()
            self._chosen[path] = reasons, text
        return text


def _key(line: str) -> str:
    """Return an id of a fact, regardless of importance, that does not reveal its text."""
    fact = without_list_mark(line).encode("utf-8", "replace")
    return hashlib.blake2b(fact, digest_size=8).hexdigest()


def cut_at_line(text: str, budget: int, note: str, path: str = "") -> str:
    """Return `text`, or as many of its first lines as fit `budget` tokens and the `note`.

    The note may contain `{path}` and `{line}`, the first line that is left out."""
    if estimate_tokens(text) <= budget:
        return text
    kept: list[str] = []
    room = budget
    for line in text.splitlines():
        room -= estimate_tokens(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join([*kept, note.format(path=path, line=len(kept) + 1)])


class Selection(Struct, frozen=True):
    """The selected lines of a text, and how many facts are left out."""

    text: str
    left_out: int = 0


def select_facts(
    text: str, facts: Collection[str], budget: int, weight: Callable[[str], float]
) -> Selection:
    """Return the text if it fits `budget` tokens, else as many `facts` as fit, by descending
    `weight`. Of equal ones the last win. `facts` are stripped lines."""
    if estimate_tokens(text) <= budget:
        return Selection(text)
    lines = split(text)
    found = group_facts(lines, facts)

    def rank(fact: tuple[list[int], list[int]]) -> tuple[float, int]:
        return max(weight(lines[at]) for at in fact[1]), fact[1][0]

    kept, count, room = set[int](), 0, float(budget)
    for headings, own in sorted(found, key=rank, reverse=True):
        new = [at for at in (*headings, *own) if at not in kept]
        cost = sum(estimate_tokens(lines[at]) + _LINE_END for at in new)
        if cost <= room:
            kept.update(new)
            room, count = room - cost, count + 1
    chosen = (lines[at] for at in sorted(kept))
    spaced = "\n".join(f"\n{line}\n" if is_heading(line) else line for line in chosen)
    shown = re.sub(r"\n{3,}", "\n\n", spaced).strip("\n")
    return Selection(shown, len(found) - count)


def group_facts(lines: Sequence[str], facts: Collection[str]) -> list[tuple[list[int], list[int]]]:
    """Return for each fact the numbers of the headings above it, and of its lines."""
    found, above = list[tuple[list[int], list[int]]](), list[int]()
    for at, line in enumerate(lines):
        if is_heading(line):
            level = line.split()[0]
            above = [*(one for one in above if lines[one].split()[0] < level), at]
        elif line.strip() in facts:
            if line[0].isspace() and found and found[-1][0] == above:
                found[-1][1].append(at)
            else:
                found.append((above, [at]))
    return found
