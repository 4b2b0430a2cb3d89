"""The count of habits that make English hard to read."""

from __future__ import annotations

import ast

import pytest

from scripts.english import HABITS, Line, count_hits, prose_of, texts_in


@pytest.mark.parametrize(
    ("text", "habit"),
    [
        ("It shows what was said.", "a clause in place of a noun"),
        ("The person is told.", "told"),
        ("None where nothing is there.", "where for"),
        ("It is made anew.", "beside, anew"),
        ("Show those that wait.", "those that"),
        ("Nobody may read it.", "nobody"),
        ("You alone may read it.", "alone"),
        ("The reason stands below.", "stands"),
        ("Text from elsewhere is marked.", "from elsewhere"),
        ("First this; then that.", "semicolon"),
    ],
)
def test_a_habit_is_counted(text: str, habit: str) -> None:
    (meant,) = [one for one in HABITS if one.name.startswith(habit)]
    assert count_hits([Line("page:1", text)], meant) > 0


@pytest.mark.parametrize(
    "text",
    [
        "Show the pending messages.",
        "If one of the files is open, close it.",
        "Choose where to save it, and what to keep.",
        "If the file has changed, the edit is rejected.",
    ],
)
def test_plain_english_is_not(text: str) -> None:
    assert [one.name for one in HABITS if count_hits([Line("page:1", text)], one)] == []


def test_code_and_addresses_of_a_page_do_not_count() -> None:
    page = "Run it:\n```\nwhat is told; anew\n```\nSee [memory](what-is-told.md) and `told;`.\n"
    assert [one.name for one in HABITS if count_hits([Line("p:1", prose_of(page))], one)] == []
    assert prose_of(page).count("\n") == page.count("\n")


def test_texts_are_strings_of_some_words_and_no_docstrings() -> None:
    source = '''
def greet(name):
    """Say a friendly word to somebody."""
    print("short text")
    print(f"{name} has sent a message")
    return "The message was sent to all"
'''
    found = [text for _, text in sorted(texts_in(ast.parse(source)))]
    assert found == ["X has sent a message", "The message was sent to all"]
