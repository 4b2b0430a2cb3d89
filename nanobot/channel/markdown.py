"""Markdown for all adapters: parsed with bounded work, and laid out in lines of spans.

Markdown becomes tokens (`tokenize`, with ~strikethrough~ and ||spoiler|| added to CommonMark and
tables), inline tokens become lines of spans (`_Inline`), and `_Layout` puts blocks around them.
Adapters render the lines with marks or entities. Most platforms have no headings or tables, so
headings are bold and tables are aligned in code, and a line records which of these it is. Code is
on lines of its own, without prefixes, so that it can be copied.

Invariant: no visible text is lost. If a link can't be shown as one, its address follows its text.
Reference definitions stay text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from nanobot.text import valid_unicode

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

Style = Literal["strong", "em", "s", "spoiler"]

_MAX_NESTING = 20  # levels of blocks (a list takes two). The parser drops deeper ones.
_MAX_LENGTH = 8_192  # characters
_MAX_BRACKETS = 1_000
"""For nested brackets the parser's time is quadratic. Up to these limits, which no message reaches,
it is a tenth of a second."""
_MAX_CELLS = 5_000  # the parser adds the missing cells of a table row
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_ADDRESS = {"link_open": "href", "image": "src"}
_STYLES: dict[str, Style] = {"strong": "strong", "em": "em", "s": "s", "spoiler": "spoiler"}
_PAIRS = {"~": ("s", 1), "~~": ("s", 2), "||": ("spoiler", 3)}
"""The tag for each pair, and a number that no other kind of delimiter has."""
_MARKERS = {number: tag for tag, number in _PAIRS.values()}
_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_RULE = "———"
_NUMBER = r"[-+−±~≈]?[$€£¥]? ?\d[\d.,'’\u00a0\u202f]*(?:\s?(?:[%‰$€£¥]|[^\W\d_]{1,3}))?"
_LANGUAGE = re.compile(r"[A-Za-z0-9+#._-]{0,32}")


class Span(Struct, frozen=True):
    """A piece of a line. In `code` and `raw` text (an address) every character is literal. `url`:
    the target if it is shown as a link."""

    text: str
    styles: tuple[Style, ...] = ()
    code: bool = False
    raw: bool = False
    url: str = ""


class Line(Struct, frozen=True):
    """Spans after a `prefix`. With `is_code`: a code block, whose one span has all its lines and
    whose prefix is not shown. `is_quoted`: it is in a quote that begins after `lead`. `heading`:
    its level from 1 to 6. `table`: the tokens of the table that the code shows. `begins`: the list
    that starts with this line."""

    spans: Sequence[Span] = ()
    prefix: str = ""
    lead: str = ""
    is_code: bool = False
    language: str = ""
    is_quoted: bool = False
    heading: int = 0
    table: Sequence[Token] = ()
    begins: ItemList | None = None


class ItemList(Struct, frozen=True):
    """A list that takes `lines` lines. `items` are markers and the lines after each."""

    items: Sequence[tuple[str, Sequence[Line]]]
    lines: int


class Cell(Struct, frozen=True):
    """A table cell. `align` is `left`, `right`, `center` or empty."""

    lines: Sequence[Sequence[Span]]
    align: str = ""
    is_header: bool = False


class Dialect(Struct, frozen=True):
    """The block style of a platform. `linkable`: addresses that it shows as links. `marks_quotes`:
    `quote` precedes each line of a quote, which has no blank lines. Otherwise the adapter marks the
    outermost quote. `hides`: it supports spoilers. Otherwise their marks are text. An item's lines
    are indented by `indent`, or by the width of its marker if that is wider."""

    bullets: Sequence[str]
    indent: str
    widest_column: int
    linkable: re.Pattern[str] | None = None
    marks_quotes: bool = True
    quote: str = "> "
    hides: bool = False


def clean_source(markdown: str) -> str:
    """Normalize line ends as the parser does, and replace characters that can't be sent."""
    text = valid_unicode(markdown).replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("\0", "\ufffd")


def lay_out(source: str, dialect: Dialect) -> list[Line]:
    """Return the lines of a cleaned `source`, or none if it must be shown unparsed."""
    tokens = tokenize(source)
    return _Layout(tokens, source, dialect).until("", has_gaps=True) if tokens else []


def is_parsed(source: str) -> bool:
    """Return True if parsing `source` takes a reasonable time, like a real message."""
    if len(source) > _MAX_LENGTH or source.count("[") > _MAX_BRACKETS:
        return False
    lines = source.split("\n")
    return max(line.count("|") for line in lines) * len(lines) <= _MAX_CELLS


def tokenize(source: str) -> list[Token] | None:
    """Return the tokens, with HTML and reference definitions as text. None if parsing would take
    too long, or if nesting is so deep that the parser would drop text."""
    if not is_parsed(source):
        return None
    tokens = make_parser().parse(source)
    is_deep = any(token.nesting == 1 and token.level >= _MAX_NESTING - 1 for token in tokens)
    return None if is_deep else tokens


def table_rows(table: Sequence[Token], dialect: Dialect | None = None) -> list[list[Cell]]:
    """Return the cells of a table. Without a `dialect` they have no links or spoilers."""
    rows: list[list[Cell]] = []
    for token in table:
        if token.type == "tr_open":
            rows.append([])
        elif token.type in {"th_open", "td_open"}:
            align = str(token.attrs.get("style", "")).removeprefix("text-align:")
            is_header = token.type == "th_open"
        elif token.type == "inline":
            lines = _Inline(dialect).write(token.children)
            rows[-1].append(Cell(lines, align, is_header))
    return rows


def render_table(table: Sequence[Token], source: Sequence[str], *, widest: int) -> list[Line]:
    """Render a table (from `table_open` to `table_close`) in columns for a monospaced font. If a
    row has more cells than the head, the parser drops them, so the lines of `source` are shown.
    Cells wider than `widest` columns don't widen their column."""
    columns = sum(token.type == "th_open" for token in table)
    lines_of_rows = (token.map[0] for token in table if token.type == "tr_open" and token.map)
    if any(count_cells(source[line]) > columns for line in lines_of_rows):
        first, last = table[0].map or (0, 0)
        return render_code("\n".join(source[first:last]))
    text = align_columns(table_rows(table), widest)
    return [replace(line, table=table) for line in render_code(text)]


def text_of(cell: Cell) -> str:
    """Return the text of a cell in one line."""
    return join_text(cell.lines).strip()


def align_columns(rows: Sequence[Sequence[Cell]], widest: int) -> str:
    """Align the rows in columns, with a line below the first one. A column of numbers without an
    alignment is aligned to the right."""
    columns = []
    for cells_of in zip(*rows, strict=True):
        given, column = cells_of[0].align, list(map(text_of, cells_of))
        fitting = [width for width in map(width_of, column) if width <= widest]
        width = max(fitting, default=3)
        cells = list(filter(None, column[1:]))
        is_number = bool(cells) and all(re.fullmatch(_NUMBER, cell) for cell in cells)
        align = given or ("right" if is_number else "left")
        columns.append(["-" * width] + [_pad(cell, width, align) for cell in column])
    rule, *lines = zip(*columns, strict=True)
    shown = [" | ".join(line).rstrip() for line in lines]
    return "\n".join((shown[0], "-+-".join(rule), *shown[1:]))


def _pad(cell: str, width: int, align: str) -> str:
    room = " " * (width - width_of(cell))
    if align == "center":
        return room[: len(room) // 2] + cell + room[len(room) // 2 :]
    return room + cell if align == "right" else cell + room


@cache
def make_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING})
    # Reference definitions stay text: if resolved, an unused one would vanish.
    parser.enable("table").disable("reference")
    parser.inline.add_terminator_char("|")
    parser.inline.ruler.before("emphasis", "pair", mark_pair)
    parser.inline.ruler2.after("balance_pairs", "pair", _join_pairs)
    return parser


def mark_pair(state: StateInline, silent: bool) -> bool:
    """Add the delimiters of a possible pair, as text until it is complete. `~` and `~~` strike out,
    `||` hides, and runs of other lengths are text. A single `~` can mean "about" (`~5`, `3~5`), and
    programs use `||`, so neither counts inside a word of letters and digits."""
    from markdown_it.rules_inline.state_inline import Delimiter

    start, mark = state.pos, state.src[state.pos]
    if silent or mark not in "~|":
        return False
    end = start
    while end < state.posMax and state.src[end] == mark:
        end += 1
    run = state.src[start:end]
    kind = _PAIRS.get(run)
    if kind is not None:
        around = state.src[max(start - 1, 0) : start], state.src[end : end + 1]
        is_within_word = run != "~~" and all(is_word(one) for one in around)
        scanned = state.scanDelims(start, canSplitWord=run != "~" and not is_within_word)
    state.push("text", "", 0).content = run
    state.pos = end
    if kind is not None:
        place = len(state.tokens) - 1
        state.delimiters.append(
            Delimiter(kind[1], 0, place, -1, scanned.can_open, scanned.can_close)
        )
    return True


def is_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _join_pairs(state: StateInline) -> None:
    """Replace the delimiters that belong together by tags."""
    inner = (meta["delimiters"] for meta in state.tokens_meta if meta and "delimiters" in meta)
    for delimiters in (state.delimiters, *inner):
        for opening in delimiters:
            tag = _MARKERS.get(opening.marker)
            if tag is None or opening.end < 0:
                continue
            for place, name, nesting in (
                (opening.token, "open", 1),
                (delimiters[opening.end].token, "close", -1),
            ):
                token = state.tokens[place]
                token.markup, token.content = token.content, ""
                token.type, token.tag, token.nesting = f"{tag}_{name}", tag, nesting


def width_of(text: str) -> int:
    """Return the number of columns: East Asian wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    shown = (each for each in text if unicodedata.category(each) not in {"Mn", "Me", "Cf"})
    return sum(2 if unicodedata.east_asian_width(each) in {"W", "F"} else 1 for each in shown)


def count_cells(line: str) -> int:
    """Count the cells in a line of a table, which may follow quote marks."""
    cells = _CELL_BORDER.split(line.lstrip(" \t>").rstrip())
    return len(cells) - (not cells[0]) - (not cells[-1])


class _Inline:
    """Turns inline tokens into `lines` of spans in the given `styles`. Without a `dialect` there
    are no links or spoilers."""

    def __init__(self, dialect: Dialect | None, styles: Sequence[Style] = ()) -> None:
        self.lines: list[list[Span]] = [[]]
        self._styles, self._linkable = list(styles), dialect.linkable if dialect else None
        self._hides = dialect is not None and dialect.hides
        self._links: list[tuple[Token, int, int]] = []
        """The open links, each with the line and span index of the start of its text."""

    def write(self, tokens: Iterable[Token] | None) -> list[list[Span]]:
        """Add tokens and return all lines."""
        for token in tokens or ():
            match token.type:
                case "softbreak" | "hardbreak":
                    self.lines.append([])
                case "code_inline":
                    self._add(token.content, code=True)
                case "link_open":
                    self._open_link(token)
                case "link_close":
                    self._close_link()
                case "image":
                    self._open_link(token)
                    self.write(token.children)
                    self._close_link()
                case _ if token.tag in _STYLES:
                    self._mark(token)
                case _:  # text, and HTML
                    self._add(token.content)
        return self.lines

    def _mark(self, token: Token) -> None:
        """Open or close a style."""
        if token.tag == "spoiler" and not self._hides:
            self._add(token.markup)
        elif token.nesting > 0:
            self._styles.append(_STYLES[token.tag])
        else:
            self._styles.pop()  # styles nest

    def _add(self, text: str, *, code: bool = False, raw: bool = False) -> None:
        styles = () if raw else tuple(dict.fromkeys(self._styles))
        for number, piece in enumerate(text.split("\n")):
            if number:
                self.lines.append([])
            if piece:
                self.lines[-1].append(Span(piece, styles, code=code, raw=raw))

    def _open_link(self, token: Token) -> None:
        self._links.append((token, len(self.lines) - 1, len(self.lines[-1])))

    def _close_link(self) -> None:
        """Make the text a link, or add the address after it."""
        token, line, start = self._links.pop()
        url, title = (str(token.attrs.get(name, "")) for name in (_ADDRESS[token.type], "title"))
        first, *others = self.lines[line:]
        shown = join_text([first[start:], *others])
        is_said = token.markup == "autolink" or url in ("", shown, f"mailto:{shown}")
        if not shown.strip():
            self._add(url, raw=True)
        if self._linkable is not None and self._linkable.match(url) and not self._links:
            for spans in self.lines[line:]:
                spans[start:] = [replace(span, url=url) for span in spans[start:]]
                start = 0
        elif shown.strip() and not is_said:
            self._add(f" ({url})", raw=True)
        if title:
            self._add(f" ({title})")


def join_text(lines: Iterable[Iterable[Span]]) -> str:
    """Return the text of the lines in one line."""
    return " ".join("".join(span.text for span in line) for line in lines)


class _Layout:
    """Turns block tokens into lines."""

    def __init__(self, tokens: Sequence[Token], source: str, dialect: Dialect) -> None:
        self._tokens, self._source, self._dialect = tokens, source.split("\n"), dialect
        self._at = 0
        self._quotes = self._bullet_lists = 0

    def until(self, end: str, *, has_gaps: bool) -> list[Line]:
        """Return the blocks up to the token `end`. `has_gaps`: separate them by blank lines."""
        lines: list[Line] = []
        while self._at < len(self._tokens) and (token := self._next()).type != end:
            block = self._block(token)
            lines += [Line()] * (has_gaps and bool(lines and block)) + block
        return lines

    def _next(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _block(self, token: Token) -> list[Line]:
        block: list[Line] = []  # empty for tokens such as the end of a paragraph
        match token.type:
            case "paragraph_open":
                block = list(map(Line, _Inline(self._dialect).write(self._next().children)))
            case "heading_open":
                title = _Inline(self._dialect, ("strong",)).write(self._next().children)
                block = [Line(spans, heading=int(token.tag[1])) for spans in title]
            case "fence":
                block = render_fence(token)
            case "code_block":
                block = render_code(token.content)
            case "html_block" | "hr":  # a rule has no content
                block = literal_lines(token.content.rstrip("\n") or _RULE)
            case "bullet_list_open" | "ordered_list_open":
                block = self._list(token)
            case "blockquote_open":
                block = self._quote()
            case "table_open":
                table = [token]
                while table[-1].type != "table_close":
                    table.append(self._next())
                block = render_table(table, self._source, widest=self._dialect.widest_column)
        return block

    def _quote(self) -> list[Line]:
        is_marked = self._dialect.marks_quotes
        self._quotes += 1
        inner = self.until("blockquote_close", has_gaps=not is_marked)
        self._quotes -= 1
        if is_marked or self._quotes:
            quote = self._dialect.quote
            return add_prefixes(inner, quote, quote) if inner else []
        return [replace(line, is_quoted=True) for line in inner]

    def _list(self, token: Token) -> list[Line]:
        """Return the items up to the end of the list, which may nest. Numbers are shown as written,
        or counted if the second repeats the first."""
        dialect, is_ordered = self._dialect, token.type == "ordered_list_open"
        has_gaps = not (dialect.marks_quotes and self._quotes)
        bullet = dialect.bullets[self._bullet_lists % len(dialect.bullets)]
        self._bullet_lists += not is_ordered
        lines: list[Line] = []
        items: list[tuple[str, list[Line]]] = []
        written: list[str] = []
        while (item := self._next()).type == "list_item_open":
            written.append(item.info)
            number = item.info
            if is_ordered and len(written) > 1 and written[0] == written[1]:
                number = str(int(written[0]) + len(written) - 1)
            marker = f"{number}{item.markup} " if is_ordered else self._check_box() or bullet
            first = self._tokens[self._at]
            is_loose = first.type == "paragraph_open" and not first.hidden and has_gaps
            inner = self.until("list_item_close", has_gaps=is_loose)
            lines += [Line()] * (is_loose and bool(lines))
            lines += add_prefixes(inner, marker, dialect.indent.ljust(width_of(marker)))
            items.append((marker, inner))
        self._bullet_lists -= not is_ordered
        return [replace(lines[0], begins=ItemList(items, len(lines))), *lines[1:]]

    def _check_box(self) -> str:
        """Remove the check box at the start of the next item and return it as a marker."""
        inline = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        first = next(iter(inline.children or ()), None)
        if first is None or first.type != "text" or first.content[:4] not in _TASKS:
            return ""
        box, first.content = first.content[:4], first.content[4:]
        return _TASKS[box]


def add_prefixes(lines: Sequence[Line], first: str, others: str) -> list[Line]:
    if not lines or lines[0].is_code:  # the marker gets a line of its own
        lines = [Line(), *lines]
    return [
        replace(line, lead=prefix + line.lead)
        if line.is_quoted
        else replace(line, prefix=prefix + line.prefix)
        for prefix, line in zip(chain([first], repeat(others)), lines, strict=False)
    ]


def literal_lines(text: str) -> list[Line]:
    return [Line((Span(line),) if line else ()) for line in text.split("\n")]


def render_fence(token: Token) -> list[Line]:
    """Return the lines of a code block. Text after the language is shown above the code."""
    language, _, rest = token.info.strip().partition(" ")
    if not token.content.strip() or not _LANGUAGE.fullmatch(language):
        language, rest = "", token.info
    about = literal_lines(rest.strip()) if rest.strip() else []
    code = render_code(token.content, language)
    return [*about, *([Line()] if about and code else []), *code]


def render_code(content: str, language: str = "") -> list[Line]:
    if not content.strip():
        return []
    return [Line((Span(content.rstrip("\n")),), is_code=True, language=language)]
