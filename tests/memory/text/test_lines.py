"""Lines of facts: comparing, applying changes to a newer text, and merging."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.memory.line_changes import Operation, apply_operations, merge, operations_between
from nanobot.memory.similarity import most_similar

_WORDS = st.lists(st.sampled_from(["tea", "coffee", "lives", "in", "Ulm", "茶", "好"]), max_size=4)
_LINES = st.one_of(
    st.builds(
        lambda mark, words, end: mark + " ".join(words) + end,
        st.sampled_from(["- ", "", "## ", "# ", "  - ", "| "]),
        _WORDS,
        st.sampled_from(["", " "]),
    ),
    st.sampled_from(["", "---", "(placeholder)", "## A", "## B", "- x", "\x0c", "\u2028"]),
)
_TEXTS = st.builds(
    lambda lines, end, ended: end.join(lines) + (end if ended else ""),
    st.lists(_LINES, max_size=9),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
_OPERATIONS = st.builds(Operation, _LINES, _LINES, st.sampled_from(["", "## A", "## B", "# C"]))

FILE = """\
# Long-term memory

## Preferences

(what they like)

- likes tea

## Important Notes

(what must not be forgotten)

---

*You may edit this file.*
"""


def count_lines(text: str) -> Counter[str]:
    return Counter(line.rstrip() for line in text.split("\n") if line.strip())


@given(_TEXTS, _TEXTS)
def test_operations_bring_the_lines_of_the_new_text(base: str, new: str) -> None:
    operations = operations_between(base, new)
    applied = apply_operations(base, operations)
    assert count_lines(applied.text) == count_lines(new)
    assert not applied.left


@given(_TEXTS, st.lists(_OPERATIONS, max_size=5))
def test_operations_made_twice_are_made_once(text: str, operations: list[Operation]) -> None:
    once = apply_operations(text, operations).text
    assert apply_operations(once, operations).text == once


@given(_TEXTS, _TEXTS, _TEXTS)
def test_a_merge_loses_no_addition_and_has_the_same_lines_either_way(
    base: str, ours: str, theirs: str
) -> None:
    merged = merge(base, ours, theirs)
    assert count_lines(merged.text) == count_lines(merge(base, theirs, ours).text)
    for side in (ours, theirs):
        assert (count_lines(side) - count_lines(base)).keys() <= count_lines(merged.text).keys()


@given(_TEXTS, _TEXTS)
def test_a_merge_with_an_unchanged_side_is_the_other_side(base: str, changed: str) -> None:
    assert merge(base, changed, base).text == changed
    assert merge(base, base, changed).text == changed


def test_a_fact_goes_after_the_last_item_of_its_section_and_placeholders_stay() -> None:
    added = Operation(new="- likes cake", section="## Preferences")
    text = apply_operations(FILE, [added]).text
    assert text == FILE.replace("- likes tea\n", "- likes tea\n- likes cake\n")


def test_the_first_fact_of_a_section_stands_apart_and_before_what_closes_the_file() -> None:
    added = Operation(new="- allergic to nuts", section="## Important Notes")
    text = apply_operations(FILE, [added]).text
    assert text == FILE.replace("forgotten)\n", "forgotten)\n\n- allergic to nuts\n")


def test_a_missing_section_is_made_before_what_closes_the_file() -> None:
    text = apply_operations(FILE, [Operation(new="- has a dog", section="## Pets")]).text
    assert text == FILE.replace("\n---", "\n## Pets\n\n- has a dog\n\n---")


def test_a_removed_line_leaves_no_double_blank_line() -> None:
    text = apply_operations(FILE, [Operation(old="- likes tea")]).text
    assert text == FILE.replace("- likes tea\n\n", "")


def test_line_endings_are_kept_and_a_missing_last_one_is_given() -> None:
    text = apply_operations("# T\r\n- x", [Operation(new="- y", section="# T")]).text
    assert text == "# T\r\n- x\r\n- y\r\n"


def test_a_similar_line_is_reworded_where_it_stands() -> None:
    new = FILE.replace("- likes tea", "- likes green tea").replace("(what they like)\n\n", "")
    assert Operation("- likes tea", "- likes green tea", "## Preferences") in operations_between(
        FILE, new
    )
    text = FILE.replace("- likes tea", "- likes tea\n- has a dog")
    reworded = apply_operations(text, [Operation("- likes tea", "- likes green tea")])
    assert reworded.text == text.replace("likes tea", "likes green tea")


def test_a_renamed_section_keeps_its_lines() -> None:
    new = FILE.replace("## Preferences", "## Their Preferences")
    assert apply_operations(FILE, operations_between(FILE, new)).text == new


def test_a_moved_line_as_earlier_versions_wrote_it_changes_nothing() -> None:
    move = Operation("- likes tea", "- likes tea", "## Important Notes")
    assert apply_operations(FILE, [move]).text == FILE


def test_a_rewording_of_what_a_person_reworded_is_left_over() -> None:
    step = Operation("- likes tea", "- likes black tea")
    text = FILE.replace("- likes tea", "- likes tea with milk")
    applied = apply_operations(text, [step])
    assert (applied.text, applied.left) == (text, (step,))


def test_both_sides_additions_survive_a_merge_in_the_layout_of_ours() -> None:
    ours = FILE.replace("- likes tea", "- likes tea\n- speaks Danish")
    theirs = FILE.replace("forgotten)\n", "forgotten)\n\n- allergic to nuts\n")
    assert merge(FILE, ours, theirs).text == ours.replace(
        "forgotten)\n", "forgotten)\n\n- allergic to nuts\n"
    )


@pytest.mark.parametrize("other", ["", "- likes tea with milk"])
def test_an_edit_against_another_edit_or_a_deletion_is_a_conflict_that_keeps_it(
    other: str,
) -> None:
    ours = FILE.replace("- likes tea", "- likes black tea")
    theirs = FILE.replace("- likes tea\n", f"{other}\n")
    for merged in (merge(FILE, ours, theirs), merge(FILE, theirs, ours)):
        assert len(merged.conflicts) == 1
        assert "likes black tea" in merged.conflicts[0]
        assert "- likes black tea" in merged.text
        assert other in merged.text


def test_the_most_similar_line_is_found_by_words_and_by_characters() -> None:
    lines = ["- likes tea", "- lives in Ulm now", "- 喜欢喝绿茶"]
    assert most_similar("- lives in Bonn now", lines) == "- lives in Ulm now"
    assert most_similar("- 喜欢喝红茶", lines) == "- 喜欢喝绿茶"
    assert most_similar("- owns a boat", lines) == ""


def test_ten_thousand_lines_are_compared_and_changed() -> None:
    base = "# T\n\n" + "".join(f"- fact {number} about {number % 97}\n" for number in range(10_000))
    new = base.replace("about 96", "concerning 96") + "- one more\n"
    operations = operations_between(base, new)
    assert len(operations) == 104
    assert apply_operations(base, operations).text == new
