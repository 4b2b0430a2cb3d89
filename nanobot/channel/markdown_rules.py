"""Rules of the parser for what chats write beyond CommonMark and tables: ~struck out~, ||hidden||.

Pairs: `~` and `~~` strike out, `||` hides; a run of another length is text. A single `~` stands
for "about" and between numbers (`~5`, `3~5`), and `||` in programs, so inside of a word of letters
and digits neither begins or ends anything.
"""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter

_PAIRS = {"~": ("s", 1), "~~": ("s", 2), "||": ("spoiler", 3)}
"""The tag that a pair becomes, and a number that no other kind of delimiter has."""
_MARKERS = {number: tag for tag, number in _PAIRS.values()}


def add_rules(parser: MarkdownIt) -> MarkdownIt:
    parser.inline.add_terminator_char("|")
    parser.inline.ruler.before("emphasis", "pair", _pair)
    parser.inline.ruler2.after("balance_pairs", "pair", _join_pairs)
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
