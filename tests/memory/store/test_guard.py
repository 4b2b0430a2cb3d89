"""Lines that count as facts, and writes that forget too much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.memory import guard
from tests.growth import assert_linear

FACTS = [
    "- Lives in Lisbon with two cats",
    "- Works on tidal power at Mareforce",
    "- Is allergic to peanuts and shellfish",
    "- Sister Ana visits every March",
    "- Prefers short answers without lists",
    "- Plays the cello on Thursdays",
    "- Owns a blue cargo bicycle",
    "- Is learning Finnish since 2024",
    "- Wants invoices as PDF files",
    "- Hates being called before nine",
]


def document(facts: list[str]) -> str:
    return "# Memory\n\n## User Information\n\n" + "\n".join(facts) + "\n"


def test_headings_blanks_rules_and_placeholders_are_no_facts() -> None:
    text = (
        "# A\n##\n\n---\n***\n(nothing yet)\n- (nothing yet)\n<!-- x -->\n- fact\n#tag fact (x)\n"
    )
    assert guard.fact_lines(text) == ["- fact", "#tag fact (x)"]


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("- Tom's birthday is on 3. May", "Tom's birthday is on 3. May"),
        ("* Bread - the dark one + butter", "Bread - the dark one + butter"),
        ("2) Likes tea", "Likes tea"),
        ("- 3. May is Tom's birthday", "3. May is Tom's birthday"),
    ],
)
def test_only_what_stands_in_front_is_a_list_mark(line: str, fact: str) -> None:
    assert guard.without_list_mark(line) == fact
    assert guard.find_line(fact, f"# Facts\n{line}\n") == line
    assert guard.with_words(line, f"{fact} 1. 2.") == f"{line} 1. 2."


@pytest.mark.parametrize(
    ("line", "is_fact"),
    [
        ("- (Work) Meeting on Monday (10:00)", True),
        ("- (nothing yet)", False),
        ("(one a line (with its date))", False),
    ],
)
def test_a_placeholder_stands_in_one_pair_of_parentheses(line: str, is_fact: bool) -> None:
    assert bool(guard.fact_lines(line)) is is_fact


def test_facts_that_differ_in_a_day_are_two() -> None:
    assert guard.find_line("Rent is due on 4. May", "- Rent is due on 3. May\n") == ""
    assert guard.with_words("3. May: rent", "4. May: rent") == "4. May: rent"
    assert guard.with_words("  1. Likes tea", "1. Likes rye") == "  1. Likes rye"


def test_lines_of_the_template_are_no_facts() -> None:
    assert guard.fact_lines("*A footer.*\n- fact\n", template="# T\n*A footer.*\n") == ["- fact"]


@pytest.mark.parametrize(
    ("kept", "refused"), [(FACTS, False), (FACTS[3:], False), (FACTS[4:], True), ([], True)]
)
def test_of_ten_facts_three_may_go_at_once(kept: list[str], refused: bool) -> None:
    assert bool(guard.refusal(document(FACTS), document(kept))) is refused


def test_of_many_facts_a_fifth_may_go_at_once() -> None:
    facts = [f"- subject{n} concerns topic{n}" for n in range(50)]
    assert not guard.refusal(document(facts), document(facts[10:]))
    assert "remove 11 facts, but at most 10" in guard.refusal(document(facts), document(facts[11:]))


def test_facts_may_be_reworded_moved_and_merged() -> None:
    reworded = [fact.replace("- ", "* ").upper() + " (confirmed)" for fact in reversed(FACTS)]
    assert not guard.find_lost_facts(document(FACTS), document(reworded))
    merged = [f"{a}; {b[2:]}" for a, b in zip(FACTS[::2], FACTS[1::2], strict=True)]
    assert not guard.find_lost_facts(document(FACTS), document(merged))


def test_a_fact_that_stands_unchanged_does_not_cover_for_similar_ones() -> None:
    likes = [f"- The user likes {thing}" for thing in ("tea", "jazz", "rain", "chess", "soup")]
    assert guard.find_lost_facts(document(likes), document(likes[:1])) == likes[1:]


def test_scripts_without_spaces_are_compared_by_character() -> None:
    assert not guard.find_lost_facts("用户住在北京朝阳区", "用户现在住在北京朝阳区")
    assert guard.find_lost_facts("用户住在北京朝阳区", "他喜欢喝绿茶")


def test_a_file_cannot_be_emptied_but_its_last_facts_can_go() -> None:
    assert "empty" in guard.refusal("- one\n", " \n")
    assert not guard.refusal(document(FACTS[:3]), document([]))
    assert not guard.refusal("", "")


def test_a_file_cannot_grow_beyond_its_budget_but_may_shrink_towards_it() -> None:
    large, larger = "word " * 9_000, "word " * 9_001
    assert "tokens" in guard.oversize("", large)
    assert "tokens" in guard.oversize(large, larger)
    assert not guard.oversize(larger, large)
    assert not guard.oversize("", "word " * 100)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("- Allergic to penicillin", "- Not allergic to penicillin"),
        ("- Nicht allergisch gegen Penicillin", "- Allergisch gegen Penicillin"),
        ("- Dentist on 12 March at ten", "- Dentist on 21 March at ten"),
        ("- Takes 5 mg of it each day", "- Takes 5 g of it each day"),
        ("- Sister Ann lives in far Oslo", "- Sister Eve lives in far Oslo"),
        ("- 对花生过敏", "- 对花生不过敏"),
    ],
)
def test_a_line_with_another_number_name_or_negation_is_lost(before: str, after: str) -> None:
    assert guard.find_lost_facts(before, after) == [before]


@given(st.text(max_size=200), st.text(max_size=200))
def test_no_text_makes_the_guard_fail_and_the_same_text_loses_nothing(a: str, b: str) -> None:
    guard.refusal(a, b)
    assert guard.find_lost_facts(a, a) == []
    assert guard.refusal(a, a) == ""


def test_a_file_far_larger_than_the_budget_is_judged_in_linear_time() -> None:
    def judge(size: int) -> None:
        before = "".join(f"- fact{n} about thing{n} and place{n}\n" for n in range(size))
        assert guard.find_lost_facts(before, before + "- one more\n") == []
        assert len(guard.find_lost_facts(before, before.replace("about", "on"))) == max(
            0, size - 500
        )

    assert_linear(judge, 150)
