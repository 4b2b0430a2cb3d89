"""From the files to passages, and from text to the words that the index stores. Pure.

A passage of a document is a run of whole paragraphs below one heading, at most `LONGEST`
characters; small neighbours are put together, a longer paragraph is cut at the end of a sentence,
else of a word. A passage that does not begin with its heading carries it, because that is often
where the words of a question are. No text is lost and none is repeated, except for headings.

A session line is read here and not by `session.records` because first indexing reads hundreds of
thousands: the fields of an ordinary message are taken as they are. Whatever looks unusual (content
in parts, a missing number or offset) goes through `records`, so that both read the same.

SQLite's `porter unicode61` finds words where a language separates them: it folds case, drops
diacritics and takes off English endings. It finds next to nothing in Chinese, Japanese and Korean,
where a run of characters without a space counts as one word. So `prepared` spells such a run out
before it is stored, as single characters and as pairs: `東京都` becomes `東 東京 京 京都 都`. A
question of one character then matches it, one of two matches the pair, and a longer one matches
by the pairs that it shares. Korean words carry their particles (`서울에서`), so they are treated
alike. Width and compatibility forms are unified (NFKC): `ＡＢＣ１２３` is `ABC123`. ASCII is stored
as it is, which also makes this cheap.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, time, tzinfo
from typing import NamedTuple, cast
from zlib import crc32

from nanobot.memory.history.entries import MOST as MOST_ID
from nanobot.memory.history.entries import decode as decode_entry
from nanobot.memory.store.guard import fact_lines
from nanobot.memory.store.notes import day_of
from nanobot.memory.text.wording import NOTE, is_unconfirmed, late
from nanobot.messages import TURN_FAILED, TURN_STOPPED, Message
from nanobot.session.records import (
    Foreign,
    JsonValue,
    Metadata,
    Record,
    Retraction,
    decode_fields,
    record_of,
)

_CJK = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3040-\u30fa\u30fc-\u30ff"
    "\u3100-\u312f\u3131-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_RUN = late(f"[{_CJK}]+")
_PIECE = late(f"[{_CJK}]+|(?:(?![{_CJK}])[^\\W_])+")
_KANA = re.compile(r"[\u3040-\u309f]+\Z")

_STOP_WORDS = """
    a about above after again against all am an and any are aren as at be because been before
    being below between both but by can cannot could couldn d did didn do does doesn doing don
    down during each few for from further had hadn has hasn have haven having he her here hers
    herself him himself his how i if in into is isn it its itself just ll m me might more most
    must my myself need no nor not now of off on once only or other our ours ourselves out over
    own re s same shall shan she should shouldn so some such t than that the their theirs them
    themselves then there these they this those through to too under until up us ve very was
    wasn we were weren what when where which while who whom whose why will with won would wouldn
    you your yours yourself yourselves also y say says said saying tell tells told mention
    mentions mentioned talk talks talked know knows got get gets
"""
STOP = frozenset(_STOP_WORDS.split())
"""Words that say nothing about what is looked for: English function words, and the words in which a
question speaks of the conversation itself."""


def prepared(text: str) -> str:
    """`text` as it is given to the full-text table."""
    if text.isascii():
        return text
    return _RUN().sub(_spelled_out, unicodedata.normalize("NFKC", text))


def words_of(text: str) -> list[str]:
    """The words of a question in order, lower case, CJK runs as the keys that find them."""
    found: list[str] = []
    for piece in _PIECE().findall(unicodedata.normalize("NFKC", text).lower()):
        found.extend(_keys(piece) if _RUN().match(piece) else [piece])
    return found


def content_words(words: list[str]) -> list[str]:
    """`words` without stop words and repetitions; all of them where nothing else would be left."""
    distinct = list(dict.fromkeys(words))
    telling = [word for word in distinct if word not in STOP]
    return telling or distinct


def match_any(words: list[str]) -> str:
    """The expression that matches any of `words`, for a full-text table; empty for none."""
    return " OR ".join(f'"{word}"' for word in words)


def _spelled_out(match: re.Match[str]) -> str:
    run = match[0]
    return f" {' '.join(_singles_and_pairs(run))} "


def _singles_and_pairs(run: str) -> Iterator[str]:
    for at, character in enumerate(run):
        yield character
        if at + 1 < len(run):
            yield run[at : at + 2]


def _keys(run: str) -> list[str]:
    """A character alone, or pairs; pairs of grammar only (hiragana) where there is nothing else."""
    if len(run) == 1:
        return [run]
    pairs = [run[at : at + 2] for at in range(len(run) - 1)]
    return [pair for pair in pairs if not _KANA.match(pair)] or pairs


LONGEST_SAID = 200_000
LONGEST_OUTPUT = 2_000
"""Characters of a message, and of a tool's output, that are indexed: who called the tool said what
mattered, and the rest drowns it."""

_ENDS_ASKING = re.compile(r"[?？][^\w]*\Z")
_BULLET = re.compile(r"[-*] (?:(\d\d):(\d\d) )?")
_SEARCH = "search_memory"
"""The tool whose output is never indexed: it repeats what is."""

_scan = json.JSONDecoder().raw_decode
_TALKERS = frozenset({"user", "assistant"})
_LINE_ENDS = frozenset({"\n", "", "\r\n"})
_NEVER = {TURN_FAILED, TURN_STOPPED, ""}


class Entry(NamedTuple):
    """A passage before it has an id. `seq` is unique in its stream; `moment` is ISO or empty.

    `hash` stands for the line it came from. `first` and `last` are what a history entry sums up.
    """

    seq: int
    text: str
    moment: str = ""
    role: str = ""
    speaker: str = ""
    origin: str = ""
    turn: str = ""
    place: str = ""
    hash: int = 0
    first: int = 0
    last: int = 0

    @property
    def asks(self) -> bool:
        """Whether a question stands in it."""
        return "?" in self.text or "？" in self.text

    @property
    def ends_asking(self) -> bool:
        """Whether it ends with a question."""
        return _ENDS_ASKING.search(self.text[-12:]) is not None


class SessionLines:
    """Reads the lines of one session's files in order; `number` is that of the last message.

    What comes out are passages and retractions; `metadata` is the newest that was seen.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.metadata: Metadata | None = None

    def read(self, lines: Iterable[bytes]) -> Iterator[Entry | Retraction]:
        """What `lines` say, in order; lines that are no message of interest say nothing."""
        for raw in lines:
            fields = _fields(raw)
            if fields is None:
                self.number += b'"role"' in raw
                continue
            found = self._ordinary(fields, raw) or self._other(record_of(fields), raw)
            if found is not None:
                yield found

    def _ordinary(self, fields: dict[str, JsonValue], raw: bytes) -> Entry | None:
        role, text, seq = fields.get("role"), fields.get("content"), fields.get("seq")
        moment = fields.get("timestamp", "")
        if (
            type(role) is not str
            or role not in _TALKERS
            or type(text) is not str
            or type(seq) is not int
            or type(moment) is not str
            or not 0 < seq < MOST_ID
            or "_type" in fields
            or not _is_whole(moment)
        ):
            return None
        self.number = seq
        if text in _NEVER or text.isspace():
            return None
        name, turn = fields.get("name", ""), fields.get("turn_id", "")
        origin = fields.get("origin", "")
        return Entry(
            seq,
            text[:LONGEST_SAID],
            moment,
            role,
            name if type(name) is str and name else role,
            origin if type(origin) is str else "",
            turn if type(turn) is str else "",
            "",
            line_hash(raw),
        )

    def _other(self, record: Record, raw: bytes) -> Entry | Retraction | None:
        match record:
            case Message():
                self.number = record.seq if 0 < record.seq < MOST_ID else self.number + 1
                return _passage_of(record, self.number, raw)
            case Metadata():
                self.metadata = record
                self.number = max(self.number, min(record.first_seq, MOST_ID) - 1)
            case Foreign(numbered=True):
                self.number += 1
            case Retraction():
                return record
        return None


class HistoryLines:
    """The same for history files. `zone` is for times without an offset."""

    metadata: Metadata | None = None

    def __init__(self, zone: tzinfo | None) -> None:
        self.number = 0
        self._zone = zone

    def read(self, lines: Iterable[bytes]) -> Iterator[Entry | Retraction]:
        """An entry for each: the summary, and under it the key facts."""
        for raw in lines:
            entry = decode_entry(raw, self._zone)
            if entry is None:
                continue
            facts = [f"- {fact}" for fact in entry.key_facts]
            yield Entry(
                seq=entry.cursor,
                text="\n".join([entry.summary.strip(), *facts])[:LONGEST_SAID],
                moment=entry.timestamp.isoformat(),
                origin=",".join(entry.origin),
                turn=entry.session,
                place=f"history {entry.cursor}",
                hash=line_hash(raw),
                first=entry.first,
                last=entry.last,
            )


def note_passages(name: str, text: str, zone: tzinfo | None) -> Iterator[Entry]:
    """The passages of the daily note called `name`: its bullets, and other paragraphs."""
    day, origin = day_of(name), ""
    if day is None:
        return
    for number, (line, passage) in enumerate(_blocks(text), 1):
        bullet = _BULLET.match(passage)
        hour, minute = (int(bullet[1]), int(bullet[2])) if bullet and bullet[1] else (0, 0)
        said_at = time(hour, minute) if hour < 24 and minute < 60 else time()
        moment = datetime.combine(day, said_at, zone).isoformat()
        if not passage.startswith(" "):  # what is indented belongs to the note above
            origin = NOTE if is_unconfirmed(passage) else ""
        yield Entry(number, passage, moment, origin=origin, place=f"{name}:{line}")


def fact_passages(path: str, text: str, template: str) -> Iterator[Entry]:
    """The facts of the long-term file at `path`, beyond its template."""
    for number, (line, passage) in enumerate(_blocks(text), 1):
        if fact_lines(passage, template):
            yield Entry(number, passage, place=f"{path}:{line}")


def well_formed(text: str) -> str:
    """`text` as the database takes it: half an emoji, or a byte of a name that is not UTF-8, is
    written as its escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def stored(text: str) -> tuple[str, str | None]:
    """`text` as the full-text table takes it, and itself where that differs."""
    if text.isascii():
        return text, None
    whole = text.encode("utf-8", "replace").decode()
    spelled = prepared(whole)
    return spelled, None if spelled == whole else whole


def _is_whole(moment: str) -> bool:
    """Whether it is a time with an offset, in the form in which it is stored."""
    try:
        return datetime.fromisoformat(moment).tzinfo is not None and moment[10] == "T"
    except ValueError:
        return False


def _fields(raw: bytes) -> dict[str, JsonValue] | None:
    """The object on a line. The usual line needs none of the checks that `decode_fields` makes."""
    try:
        text = raw.decode()
        fields, end = _scan(text)
    except (ValueError, RecursionError):
        return decode_fields(raw)
    if type(fields) is dict and text[end:] in _LINE_ENDS:
        return cast("dict[str, JsonValue]", fields)
    return decode_fields(raw)


def _passage_of(message: Message, number: int, raw: bytes) -> Entry | None:
    text = message.content
    if not text.strip() or text in _NEVER:
        return None
    tool = message.role == "tool"
    if tool and message.name == _SEARCH:
        return None
    return Entry(
        number,
        text[: LONGEST_OUTPUT if tool else LONGEST_SAID],
        message.timestamp.isoformat() if message.timestamp else "",
        message.role,
        message.name or message.role,
        message.origin,
        message.turn_id,
        "",
        line_hash(raw),
    )


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Bullets with what is indented under them, and paragraphs, each with its line number."""
    begun, block = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        fresh = not line.strip() or line.startswith("#") or _BULLET.match(line)
        if fresh and block:
            yield begun, "\n".join(block)
            block = []
        if line.strip() and not line.startswith("# "):
            begun, block = (begun if block else number), [*block, line]
    if block:
        yield begun, "\n".join(block)


def line_hash(raw: bytes) -> int:
    """Stands for a line, whatever ends it."""
    raw = raw.rstrip(b"\r\n")
    return (len(raw) & 0x7FFFFFFF) << 32 | crc32(raw)


LONGEST = 1_200
"""Characters of a passage, its heading aside."""

_ENOUGH = 500
"""A passage this long is not put together with what a new heading begins."""

_HEADING = re.compile(r" {0,3}#{1,6}\s+(?P<title>\S.*?)\s*#*\s*$")
_FENCE = re.compile(r" {0,3}(?:```|~~~)")
_SENTENCE = re.compile(r"[.!?…][\"'”’)\]]*\s|[。！？；][”」』）]*|\n")


@dataclass(frozen=True, slots=True)
class Cut:
    """A piece of a text: `line` is where it begins, counted from 1; `heading` is carried, not its
    own."""

    line: int
    text: str
    heading: str = ""

    @property
    def searchable(self) -> str:
        """The text with the heading that it stands under."""
        return f"{self.heading}\n{self.text}" if self.heading else self.text


@dataclass(frozen=True, slots=True)
class _Paragraph:
    line: int
    text: str
    title: str = ""  # where it is a heading


def cut_text(text: str, *, headings: bool = False) -> list[Cut]:
    """The passages of `text`; `headings` says that lines such as `## Plan` are headings."""
    cuts: list[Cut] = []
    together: list[_Paragraph] = []
    heading = above = ""
    for paragraph in _paragraphs(text, headings=headings):
        size = sum(len(part.text) + 2 for part in together)
        full = size + len(paragraph.text) > LONGEST
        if together and (full or (paragraph.title and size >= _ENOUGH)):
            cuts += _joined(together, above)
            together = []
        if not together:
            above = "" if paragraph.title else heading
        together.append(paragraph)
        heading = paragraph.title or heading
    return cuts + _joined(together, above)


def _joined(paragraphs: list[_Paragraph], heading: str) -> list[Cut]:
    if not paragraphs:
        return []
    if len(paragraphs) == 1:
        only = paragraphs[0]
        return [Cut(line, text, heading) for line, text in _pieces(only.line, only.text)]
    text = "\n\n".join(part.text for part in paragraphs)
    return [Cut(paragraphs[0].line, text, heading)]


def _paragraphs(text: str, *, headings: bool) -> Iterator[_Paragraph]:
    """What blank lines separate; a heading is one by itself, fenced code is never one."""
    lines: list[str] = []
    start, fenced = 1, False
    for number, line in enumerate(text.split("\n"), 1):
        fence = headings and _FENCE.match(line) is not None
        match = _HEADING.match(line) if headings and not (fenced or fence) else None
        if match or (not line.strip() and not fenced):
            if lines:
                yield _Paragraph(start, "\n".join(lines).rstrip())
                lines = []
            if match:
                yield _Paragraph(number, line.strip(), match["title"])
            continue
        if not lines:
            start = number
        lines.append(line.rstrip())
        fenced ^= fence
    if rest := "\n".join(lines).rstrip():
        yield _Paragraph(start, rest)


def _pieces(line: int, text: str) -> Iterator[tuple[int, str]]:
    """A long paragraph in pieces of at most `LONGEST` characters, with the line of each."""
    while len(text) > LONGEST:
        end = _end(text)
        if piece := text[:end].strip():
            yield line + _blank_lines(text), piece
        line += text.count("\n", 0, end)
        text = text[end:]
    if piece := text.strip():
        yield line + _blank_lines(text), piece


def _blank_lines(text: str) -> int:
    return text[: len(text) - len(text.lstrip())].count("\n")


def _end(text: str) -> int:
    """Where to cut: after the last sentence that ends in the second half, else after a word."""
    ends = [match.end() for match in _SENTENCE.finditer(text, LONGEST // 2, LONGEST)]
    if ends:
        return ends[-1]
    space = text.rfind(" ", LONGEST // 2, LONGEST)
    return space + 1 if space > 0 else LONGEST
