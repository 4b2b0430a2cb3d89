"""Markdown as Telegram shows it: valid entities, and no visible text lost."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telegram import MessageEntity

from nanobot.bus.split import split_text, utf16_length
from nanobot_telegram.markdown import ENTITY_LIMIT, TEXT_LIMIT, fits, render

EXAMPLES = Path("../shared/data/commonmark-0.31.json")
QUOTES = {"blockquote", "expandable_blockquote"}
LEAVES = {"code", "pre"}
TYPES = {"bold", "italic", "strikethrough", "spoiler", "text_link"} | LEAVES | QUOTES

WORDS = st.sampled_from(["word", "café", "日本語", "👍🏽", "a_b_c", "2*3*4", "x", "<b>", "&amp;"])
MARKS = st.sampled_from(
    ["**", "*", "_", "`", "``", "~~", "[", "](https://a.example/)", "![", "> ", "- ", "1. ", "\n",
     "\n\n", "# ", "```\n", "| ", "|--|--|\n", "    ", "\\", "<", ">", "[a]: b\n", "---\n", " ",
     "~", "||"]
)  # fmt: skip
MARKDOWN = st.lists(WORDS | MARKS, max_size=60).map("".join)


def end(entity: MessageEntity) -> int:
    """The exclusive end of its range."""
    return entity.offset + entity.length


def check(entities: Sequence[MessageEntity], text: str) -> None:
    """Check Telegram's rules for entities."""
    units = text.encode("utf-16-le", "surrogatepass")
    for at, entity in enumerate(entities):
        assert entity.type in TYPES
        assert 0 <= entity.offset < end(entity) <= len(units) // 2
        inside = units[2 * entity.offset : 2 * end(entity)].decode("utf-16-le", "surrogatepass")
        assert inside.strip()
        assert not re.match("[\udc00-\udfff]", inside)
        for other in entities[at + 1 :]:
            apart = other.offset >= end(entity) or end(other) <= entity.offset
            nested = entity.offset <= other.offset and end(other) <= end(entity)
            assert apart or nested
            assert apart or entity.type not in LEAVES
            assert apart or not {entity.type, other.type} <= QUOTES


def visible(page: str) -> set[str]:
    """Return the words that a reader of an HTML page sees, addresses and titles included."""
    page = re.sub(r'<a href="([^"]*)"(?: title="([^"]*)")?>', r" ", page)
    page = re.sub(r'<img src="[^"]*" alt="([^"]*)"[^>]*>', r" \1 ", page)
    names = r"(?:p|pre|code|em|strong|li|ul|ol|h\d|blockquote|hr|br|a)"
    page = re.sub(rf"</?{names}(?: [a-z]+=\"[^\"]*\")? ?/?>", " ", page)
    return set(re.findall(r"\w+", html.unescape(page)))


def shape(markdown: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the text, and each entity's type with its covered text."""
    rendered = render(markdown)
    units = rendered.text.encode("utf-16-le")
    return rendered.text, [
        (entity.type, units[2 * entity.offset : 2 * end(entity)].decode("utf-16-le"))
        for entity in rendered.entities
    ]


@pytest.mark.skipif(not EXAMPLES.exists(), reason="needs the CommonMark examples")
def test_all_commonmark_examples_give_valid_entities_and_lose_no_visible_text() -> None:
    for example in json.loads(EXAMPLES.read_text()):
        rendered = render(example["markdown"])
        check(rendered.entities, rendered.text)
        shown = "".join(re.findall(r"\w+", rendered.text))
        missing = {word for word in visible(example["html"]) if word not in shown}
        assert not missing, (example["example"], missing)


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        ("plain text.", "plain text.", []),
        ("**b** _i_ ~~s~~ `c`", "b i s c",
         [("bold", "b"), ("italic", "i"), ("strikethrough", "s"), ("code", "c")]),
        ("# Head\n\ntext", "Head\n\ntext", [("bold", "Head")]),
        ("👍🏽 **b**", "👍🏽 b", [("bold", "b")]),
        ("[site](https://a.example/x)", "site", [("text_link", "site")]),
        ("[local](http://localhost/x)", "local (http://localhost/x)", []),
        ("[no](javascript:alert)", "[no](javascript:alert)", []),
        ("![alt](https://a.example/p.png)", "alt", [("text_link", "alt")]),
        ("- a\n- b\n  - c", "• a\n• b\n    ◦ c", []),
        ("3. a\n4. b", "3. a\n4. b", []),
        ("- [ ] a\n- [x] b", "☐ a\n☑ b", []),
        ("> a\n> > b", "a\n\n> b", [("blockquote", "a\n\n> b")]),
        ("```python\nx = 1\n```", "x = 1", [("pre", "x = 1")]),
        ("**bold `code` bold**", "bold code bold",
         [("bold", "bold"), ("code", "code"), ("bold", "bold")]),
        ("| a | bb |\n|--|--:|\n| ccc | d |", "a   | bb\n----+---\nccc |  d",
         [("pre", "a   | bb\n----+---\nccc |  d")]),
        ("**Hel", "**Hel", []),
        ("<b>x</b>", "<b>x</b>", []),
        ("a\n\n---\n\nb", "a\n\n———\n\nb", []),
        ("2 * 3 * 4 and snake_case_name", "2 * 3 * 4 and snake_case_name", []),
        ("[]()", "[]()", []),
        ("***", "———", []),
        ("1. a\n1. b\n1. c", "1. a\n2. b\n3. c", []),
        ("2024. a\n1999. b", "2024. a\n1999. b", []),
        ("- a\n\n  b\n- c", "• a\n\n    b\n\n• c", []),
        ("- a\n  ```\n  x\n  ```\n- b", "• a\nx\n• b", [("pre", "x")]),
        ("**a **b** c**", "a b c", [("bold", "a b c")]),
        ("# a **b**", "a b", [("bold", "a b")]),
        ("[`a`](https://a.example)", "a", [("text_link", "a")]),
        ("      x\n\ny", "  x\n\ny", [("pre", "  x")]),
        ("a\nb", "a\nb", []),
        ("[mail](mailto:a@a.example)", "mail (mailto:a@a.example)", []),
        ("<a@a.example>", "a@a.example", []),
        ("~a~ ~~b~~ about ~5, ~7, 3~5 and 7~9", "a b about ~5, ~7, 3~5 and 7~9",
         [("strikethrough", "a"), ("strikethrough", "b")]),
        ("||a **b**|| 是||密||", "a b 是密",
         [("spoiler", "a b"), ("bold", "b"), ("spoiler", "密")]),
        ("x||y and a || b and z||w", "x||y and a || b and z||w", []),
        ("a\n\n```\n\n  x\n```", "a\n\n\n  x", [("pre", "\n  x")]),
    ],
)  # fmt: skip
def test_what_a_reader_sees(markdown: str, text: str, entities: list[tuple[str, str]]) -> None:
    assert shape(markdown) == (text, entities)


@pytest.mark.parametrize(("lines", "kind"), [(8, "blockquote"), (9, "expandable_blockquote")])
def test_a_long_quote_is_folded(lines: int, kind: str) -> None:
    (quote,) = render("> line\n" * lines).entities
    assert quote.type == kind
    (quote,) = render("> " + "word " * 200).entities
    assert quote.type == "expandable_blockquote"


def test_the_language_of_code_and_the_address_of_a_link_are_kept() -> None:
    (code,) = render("```python title\nx\n```").entities
    (link,) = render("[a](https://a.example/?q=1)").entities
    assert (code.language, link.url) == ("python", "https://a.example/?q=1")


@pytest.mark.parametrize(
    ("markdown", "kept"),
    [
        ("```python a title\nx\n```", "a title"),
        ("```words\n```", "words"),
        ("[a](https://a.example 'a title')", "(a title)"),
        ("![](https://a.example/p.png)", "https://a.example/p.png"),
        ("[![alt](https://a.example/p.png)](https://b.example)", "(https://a.example/p.png)"),
        ("[a]: https://a.example", "[a]: https://a.example"),
        ("[a]: https://a.example 'title'\n\n[a]", "title"),
        ("[a]: https://a.example\n[a]: https://b.example\n\n[a]", "https://b.example"),
        ("[a]: /here\n\n[a]", "/here"),
        ("| a | b |\n|---|---|\n| 1 | 2 | more |", "more"),
        ("| a |\n|---|\n| [b](https://a.example) |", "https://a.example"),
        ("<!-- note -->", "<!-- note -->"),
        ("\ud83d\ude00 \ud83d", "😀 \ufffd"),
    ],
)
def test_what_other_renderers_hide_is_shown(markdown: str, kept: str) -> None:
    assert kept in render(markdown).text


def test_an_address_used_many_times_does_not_make_the_text_many_times_as_long() -> None:
    markdown = f"[a]: /{'u' * 2000}\n\n" + "[a] word\n" * 100
    assert len(render(markdown).text) < 2 * len(markdown)


def test_one_wide_cell_does_not_widen_every_row() -> None:
    markdown = f"| a | b |\n|---|---|\n| {'x' * 1000} | c |\n" + "| d | e |\n" * 50
    assert len(render(markdown).text) < 2 * len(markdown)
    assert "\nd | e\n" in render(markdown).text


@given(st.text())
def test_any_text_is_shown_with_valid_entities(text: str) -> None:
    rendered = render(text)
    check(rendered.entities, rendered.text)
    assert bool(rendered.text.strip()) == bool(text.strip())


@given(MARKDOWN)
def test_any_markdown_keeps_its_words_and_has_valid_entities(markdown: str) -> None:
    rendered = render(markdown)
    check(rendered.entities, rendered.text)
    for word in ("word", "café", "日本語", "👍🏽"):
        assert rendered.text.count(word) >= markdown.count(word)


@given(MARKDOWN, st.integers(1, 40))
@settings(max_examples=25, deadline=None)
def test_parts_of_any_markdown_fit_and_keep_its_words(markdown: str, times: int) -> None:
    whole = f"{markdown}\n\n" * times * 5
    parts = [render(part) for part in split_text(whole, TEXT_LIMIT, fits)]
    for part in parts:
        check(part.entities, part.text)
        assert utf16_length(part.text) <= TEXT_LIMIT
        assert len(part.entities) <= ENTITY_LIMIT
    shown = "".join(re.sub(r"\s", "", part.text) for part in parts)
    assert shown.count("日本語") >= whole.count("日本語")


def test_a_text_with_too_many_entities_for_one_message_becomes_several() -> None:
    parts = split_text("**a** and more\n" * 150, TEXT_LIMIT, fits)
    assert sum(len(render(part).entities) for part in parts) == 150
    assert all(len(render(part).entities) <= ENTITY_LIMIT for part in parts)


@pytest.mark.parametrize(
    "unit",
    ["[", "`a", "*a ", ">", "- ", "<", "&", "![a](", "[a](b ", "| ", "[a]: b\n", "_a_b", "~~a",
     "||a ", "[^a]", "[^a]: b\n"]
)  # fmt: skip
def test_hostile_markup_is_shown_as_it_is_rather_than_parsed_for_long(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    rendered = render(text)
    assert rendered.text.split() == text.split()
    assert not rendered.entities


@pytest.mark.parametrize(
    "text", ["![" * 2000, "|" + "a|" * 300 + "\n|" + "-|" * 300 + "\n|a" * 900]
)
def test_a_message_that_takes_long_to_parse_is_shown_as_it_is(text: str) -> None:
    assert render(text).text == text.strip()


def test_what_is_nested_too_deeply_is_not_left_out() -> None:
    markdown = "".join(f"{'  ' * depth}- level{depth}\n" for depth in range(40))
    assert all(f"level{depth}" in render(markdown).text for depth in range(40))
