"""When a text states a fact, and when it states another one."""

from __future__ import annotations

import pytest

from nanobot.memory.similarity import Fact, Request, remove_sentences, share, words
from tests.growth import assert_linear

ANN = "- Their sister Ann lives in Oslo"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (ANN, "My sister Ann lives in Oslo."),
        (ANN, "Ann, who is my sister, has been living in Oslo for years"),
        (ANN, "Oslo is where Ann lives"),
        (ANN, "Ann is my sister. She moved to Oslo."),
        ("- Allergic to peanuts", "careful: I'm allergic to peanuts"),
        ("- The door code is 4711", "door code 4711"),
        ("- Moved house on 2026-03-10 to Berlin", "we moved house, to Berlin"),
        ("- 用户住在柏林", "我住在柏林, 用户"),
    ],
)
def test_a_fact_is_known_again_in_other_words(line: str, text: str) -> None:
    assert Fact.of(line).is_stated_by(text)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (ANN, "My sister Eve lives in Oslo."),
        (ANN, "My sister Ann lives in Rome."),
        (ANN, "Where is Oslo?"),
        ("- The door code is 4711", "The door code is 4712"),
        ("- Allergic to peanuts", "I bought peanuts"),
        ("- Takes vitamin D", "They take vitamin C"),
        ("- Allergic to peanuts", ""),
    ],
)
def test_another_fact_is_not_taken_for_it(line: str, text: str) -> None:
    assert not Fact.of(line).is_stated_by(text)


def test_words_scattered_over_a_long_text_state_nothing() -> None:
    filler = " ".join(f"Word{number} goes on and on here." for number in range(30))
    assert not Fact.of(ANN).is_stated_by(f"Ann called. {filler} A sister lives there. Oslo is far.")
    assert Fact.of(ANN).is_stated_by(f"{filler} Ann is my sister. She lives in Oslo. {filler}")


def test_what_a_person_typed_needs_every_word() -> None:
    request = Request.of("sister Ann")
    assert request.closeness("my sister is called Ann") == 2
    assert request.closeness("my sister is called Eve") == 0
    assert Request.of("the").closeness("the") == 0
    assert Request.of("vitamin D").closeness("Takes vitamin D") == 2
    assert Request.of("vitamin D").closeness("Takes vitamin C, says the doctor") == 0


def test_only_the_sentences_that_state_it_are_taken_out() -> None:
    text = "[2026-03-10 18:00] They planned a trip. Their sister Ann lives in Oslo. It rained."
    facts = Fact.of(ANN).is_stated_by
    assert remove_sentences(text, facts) == "[2026-03-10 18:00] They planned a trip. It rained."
    assert remove_sentences("Ann is a sister. She lives in Oslo. It rained.", facts) == "It rained."
    assert remove_sentences("[2026-03-10 18:00] Their sister Ann lives in Oslo.", facts) == ""
    assert remove_sentences("  It rained.\n", facts) == "  It rained.\n"


def test_forms_of_a_word_count_as_the_word() -> None:
    assert share({"allergy", "peanut"}, "allergic to peanuts") == 1.0
    assert share({"cat", "car"}, "a cart") == 0.0


@pytest.mark.parametrize("piece", ["1", "1-", "a'", "A ", "狗", "l' ", "à", "_"])
def test_the_words_of_a_text_of_one_thing_take_linear_time(piece: str) -> None:
    assert_linear(lambda length: words((piece * length)[:length]), 2_000)
