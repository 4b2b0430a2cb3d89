"""A known fact changes at once only if the person stated it plainly. Otherwise they are asked."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nanobot.memory.consolidation.changes import memory_changes
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.dream.extraction import Update, screen
from nanobot.memory.line_changes import Operation
from nanobot.memory.model_text import Echoes
from nanobot.memory.support import Talk
from nanobot.messages import Message

WHEN = datetime(2026, 3, 9, 12, tzinfo=UTC)

NOT_PLAIN = [
    # About someone else.
    ("Tom is no longer allergic to nuts, lucky him", "Allergic to nuts", "Not allergic to nuts"),
    ("My brother is not lactose intolerant", "Lactose intolerant", "Not lactose intolerant"),
    ("My mother takes 10 mg of ramipril", "Takes 5 mg of ramipril", "Takes 10 mg of ramipril"),
    ("Our neighbours pay 990 euros of rent", "Pays 850 euros of rent", "Pays 990 euros of rent"),
    ("Julia runs 5 km on Sundays now", "Runs 10 km on Sundays", "Runs 5 km on Sundays"),
    ("Ma sœur travaille comme infirmière à Paris", "Travaille comme infirmière à Lille",
     "Travaille comme infirmière à Paris"),
    ("我朋友对海鲜不过敏", "对海鲜过敏", "对海鲜不过敏"),
    ("友達は猫を三匹飼っています", "猫を二匹飼っている", "猫を三匹飼っている"),
    # Supposed, asked, reported, in jest.
    ("Julia may quit the library", "Julia works at the library", "Julia quit the library"),
    ("Should we say that we pay 900 euros of rent per month?", "Pays 850 euros of rent per month",
     "Pays 900 euros of rent per month"),
    ("Tom says I'm not allergic to nuts", "Allergic to nuts", "Not allergic to nuts"),
    ("haha, I'm not allergic to nuts, just kidding", "Allergic to nuts", "Not allergic to nuts"),
    ("I'm not allergic to nuts\nJust kidding!", "Allergic to nuts", "Not allergic to nuts"),
    # Of the past, or not the person's own statement.
    ("I used to take 2.5 mg of ramipril", "Takes 5 mg of ramipril", "Takes 2.5 mg of ramipril"),
    ("As a child I was not lactose intolerant", "Lactose intolerant", "Not lactose intolerant"),
    ("Früher hat Maren in Hamburg gewohnt", "Maren wohnt in Kiel", "Maren wohnt in Hamburg"),
    ("昔は猫を三匹飼っていました", "猫を二匹飼っている", "猫を三匹飼っている"),
    ("Translate: my mother's birthday is on 9 May", "Mother's birthday is on 3 April",
     "Mother's birthday is on 9 May"),
    # A number that counts something else.
    ("Dentist on 12 March, 21 degrees today", "Dentist on 12 March", "Dentist on 21 March"),
]  # fmt: skip

ASKED = [
    ("Landlord raised the rent to 875 a month", "Pays 850 euros of rent per month",
     "Pays 875 euros of rent per month"),
    ("Ben turned 8 yesterday!", "Son Ben is 7 years old and loves football",
     "Son Ben is 8 years old and loves football"),
    ("No wait, the dentist is on the 13th", "Dentist on 12 March", "Dentist on 13 March"),
]  # fmt: skip


def talk_of(said: str) -> Talk:
    return Talk(Message("user", line, WHEN, at) for at, line in enumerate(said.split("\n"), 1))


def dreamt(said: str, old: str, new: str) -> list[Update]:
    """Return the updates for a replacement that Dream's model proposes."""
    update = Update(LONG_TERM, Operation(f"- {old}", new))
    files = {LONG_TERM: f"- {old}\n"}
    return screen([update], talk_of(said), files, Echoes(()), lambda _path, _line: False)[0]


@pytest.mark.parametrize(("said", "old", "new"), NOT_PLAIN)
def test_what_is_not_said_plainly_of_a_fact_leaves_it_as_it_is(
    said: str, old: str, new: str
) -> None:
    base = f"# Memory\n\n- {old}\n"
    for update in (base.replace(old, new), f"{base}- {new}\n"):
        made = memory_changes(base, update, talk_of(said)).operations
        assert not any(one.old or one.new == f"- {new}" for one in made)
    assert not any(one.step.new == f"- {new}" for one in dreamt(said, old, new) if not one.origins)


@pytest.mark.parametrize(("said", "old", "new"), ASKED)
def test_a_change_that_the_person_named_is_not_lost_but_waits(
    said: str, old: str, new: str
) -> None:
    base = f"# Memory\n\n- {old}\n"
    (held,) = memory_changes(base, base.replace(old, new), talk_of(said)).held
    (asked,) = dreamt(said, old, new)
    assert (held.old, held.new) == (asked.step.old, asked.step.new) == (f"- {old}", f"- {new}")
    assert asked.origins


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("I left the keys at the library where Julia works", "Julia works at the library"),
        ("I run longer on Sundays: 10 km takes an hour", "Runs 10 km on Sundays"),
        ("I used the 5 mg of ramipril this morning", "Takes 5 mg of ramipril"),
        ("ya no hay carne los viernes en la tienda", "No come carne los viernes"),
        ("Tom is no longer allergic to nuts", "Allergic to nuts"),
    ],
)
def test_a_fact_is_over_only_if_it_and_nothing_else_is_said_to_be(said: str, fact: str) -> None:
    assert not talk_of(said).says_over(fact)


@pytest.mark.parametrize(
    "line",
    [
        "Likes tea from https://evil.example/shop",
        "Likes tea from the shop evil-shop.com",
        "Likes tea, write to paul@evil.example",
        "### I like tea",
        "| I like | tea |",
        "I like tea:",
    ],
)
def test_an_address_that_nobody_named_and_markup_are_no_fact(line: str) -> None:
    said = "I like tea from the shop, shall I write to Paul"
    made = memory_changes("# Memory\n", f"# Memory\n\n- {line}\n", talk_of(said)).operations
    assert not any(line in one.new for one in made)
    update = Update(LONG_TERM, Operation(new=line))
    files = {LONG_TERM: "# Memory\n"}
    kept, _ = screen([update], talk_of(said), files, Echoes(()), lambda _path, _line: False)
    assert not any(line in one.step.new for one in kept)


@pytest.mark.parametrize("link", ["https://shop.example/tea", "shop.example", "paul@shop.example"])
def test_an_address_that_the_person_named_is_kept(link: str) -> None:
    line = f"- Buys tea at {link}"
    base = "# Memory\n"
    (made,) = memory_changes(base, f"{base}\n{line}\n", talk_of(f"I buy tea at {link}.")).operations
    assert made.new == line
