"""What chats write beyond CommonMark and tables, as rules of the parser: ~struck out~, ||hidden||,
and footnotes.

Pairs: `~` and `~~` strike out, `||` hides; a run of another length is text. A single `~` stands
for "about" and between numbers (`~5`, `3~5`), and `||` in programs, so inside of a word of letters
and digits neither begins or ends anything.

Footnotes: `[^label]` refers to a note that a line `[^label]: …` begins; what is indented goes on
with it. `resolve_footnotes` numbers the notes in the order in which they are referred to and puts
them to the end. Invariant: a reference without a note, and a note without a reference, stay as they
were written, since the text may be one part of several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter
from markdown_it.token import Token
from msgspec import Struct

_PAIRS = {"~": ("s", 1), "~~": ("s", 2), "||": ("spoiler", 3)}
"""The tag that a pair becomes, and a number that no other kind of delimiter has."""
_MARKERS = {number: tag for tag, number in _PAIRS.values()}

_LABEL = r"\[\^([^\s\[\]^]{1,64})\]"
_REFERENCE = re.compile(_LABEL + r"(?!\()")
_DEFINITION = re.compile(_LABEL + r":[ \t]*")
_INSIDE = "inside a note"
_INDENT = 4
"""Columns by which lines are indented that go on with a note."""


def add_rules(parser: MarkdownIt) -> MarkdownIt:
    """`parser` with these rules."""
    parser.inline.add_terminator_char("|")
    parser.inline.ruler.before("emphasis", "pair", _pair)
    parser.inline.ruler2.after("balance_pairs", "pair", _join_pairs)
    parser.inline.ruler.before("link", "footnote_reference", _footnote_reference)
    interrupts = ["paragraph", "blockquote", "list"]
    parser.block.ruler.before("reference", "footnote", _footnote, {"alt": interrupts})
    return parser


def _pair(state: StateInline, silent: bool) -> bool:
    """Note the delimiters of a possible pair, as text until it turns out to be one."""
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
        is_within_word = run != "~~" and all(_is_word(one) for one in around)
        scanned = state.scanDelims(start, canSplitWord=run != "~" and not is_within_word)
    state.push("text", "", 0).content = run
    state.pos = end
    if kind is not None:
        place = len(state.tokens) - 1
        state.delimiters.append(
            Delimiter(kind[1], 0, place, -1, scanned.can_open, scanned.can_close)
        )
    return True


def _is_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _join_pairs(state: StateInline) -> None:
    """Make tags of the delimiters that were found to belong together."""
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


def _footnote_reference(state: StateInline, silent: bool) -> bool:
    match = _REFERENCE.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        token = state.push("footnote_reference", "", 0)
        token.content, token.info = match[0], match[1]
    state.pos = match.end()
    return True


def _footnote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A note, from the line that begins it to the last one that goes on with it."""
    match = _definition_at(state, start)
    is_inside = state.level > 0 and state.sCount[start] >= state.blkIndent
    if match is None or is_inside or _INSIDE in state.env:
        return False
    if silent:
        return True
    last = _last_line(state, start, end)
    first = state.src[match.end() : state.eMarks[start]]
    others = state.getLines(start + 1, last, _INDENT, False)
    note = state.push("footnote_open", "", 1)
    note.content, note.info = match[0].rstrip(), match[1]
    inner: list[Token] = []
    env = {**state.env, _INSIDE: True}
    state.md.block.parse(f"{first}\n{others}", state.md, env, inner)
    for token in inner:
        if token.map is not None:
            token.map = [line + start for line in token.map]
    state.tokens.extend(inner)
    state.push("footnote_close", "", -1)
    state.line = last
    return True


def _definition_at(state: StateBlock, line: int) -> re.Match[str] | None:
    if state.is_code_block(line):
        return None
    return _DEFINITION.match(state.src, state.bMarks[line] + state.tShift[line], state.eMarks[line])


def _last_line(state: StateBlock, start: int, end: int) -> int:
    """Where a note ends, exclusive: lines that are indented go on with it, and those that follow
    its text at once and begin nothing else."""
    others = state.md.block.ruler.getRules("paragraph")
    last = line = start + 1
    while line < end:
        if not state.isEmpty(line):
            is_next = line == last
            begins = is_next and any(rule(state, line, end, True) for rule in others)
            if state.sCount[line] < _INDENT and (not is_next or begins):
                break
            last = line + 1
        line += 1
    return last


class _Note(Struct, frozen=True):
    """A note, as it was written: `mark` is `[^label]:`."""

    label: str
    mark: str
    content: list[Token]


def resolve_footnotes(tokens: Sequence[Token]) -> list[Token]:
    """The tokens of a text, with its notes numbered and, between `notes_open` and `notes_close`, at
    the end."""
    pieces = list(_pieces(iter(tokens)))
    notes: dict[str, _Note] = {}
    for piece in pieces:
        if isinstance(piece, _Note):
            notes.setdefault(piece.label, piece)
    if not notes:
        return [*tokens]
    numbers = _numbers([piece for piece in pieces if isinstance(piece, Token)], notes)
    for reference in _references(tokens):
        if reference.info in numbers:
            reference.content = f"[{numbers[reference.info]}]"
    shown: list[Token] = []
    for piece in pieces:
        if isinstance(piece, Token):
            shown.append(piece)
        elif piece.label not in numbers or piece is not notes[piece.label]:
            shown += _marked(piece.mark, piece.content)
    shown.append(Token("notes_open", "", 1))
    for label, number in numbers.items():
        shown += _marked(f"[{number}]", notes[label].content)
    return [*shown, Token("notes_close", "", -1)]


def _numbers(body: list[Token], notes: Mapping[str, _Note]) -> dict[str, int]:
    """The numbers of the notes that are referred to, by label; a note may refer to others."""
    numbers: dict[str, int] = {}
    searched = [body]
    for part in searched:
        for reference in _references(part):
            if reference.info in notes and reference.info not in numbers:
                numbers[reference.info] = len(numbers) + 1
                searched.append(notes[reference.info].content)
    return numbers


def _pieces(tokens: Iterator[Token]) -> Iterator[Token | _Note]:
    for token in tokens:
        if token.type == "footnote_open":
            content = list(takewhile(lambda one: one.type != "footnote_close", tokens))
            yield _Note(token.info, token.content, content)
        else:
            yield token


def _references(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        if token.type == "footnote_reference":
            yield token
        yield from _references(token.children or ())


def _marked(mark: str, content: Sequence[Token]) -> list[Token]:
    """A note behind its mark, which stands alone where it does not begin with words."""
    if content and content[0].type == "paragraph_open":
        content[1].children = [_text(f"{mark} "), *(content[1].children or ())]
        return [*content]
    alone = Token("inline", "", 0, children=[_text(mark)])
    return [Token("paragraph_open", "p", 1), alone, Token("paragraph_close", "p", -1), *content]


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)
