"""A mark on a line rates its importance and does not change its statement."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nanobot.memory import guard
from nanobot.memory.guard import memory_notice
from nanobot.memory.importance import (
    Importance,
    importance_of,
    marks_of,
    with_mark,
    without_importance,
)
from nanobot.memory.line_changes import Operation, apply_operations, merge, operations_between, undo
from nanobot.memory.search import Query
from nanobot.memory.similarity import Fact, most_similar
from nanobot.memory.version import Change
from tests.files import files_with
from tests.memory.homes import RealHome

MEMORY = "memory/MEMORY.md"
KEY = "telegram:1"
FACT = "- Allergic to penicillin"
MARKED = f"{FACT} <!-- importance 5: health -->"


@pytest.mark.parametrize(
    ("line", "level", "reason"),
    [
        (MARKED, 5, "health"),
        ("- x<!--importance 4-->", 4, ""),
        ("- x <!-- Importance: 2, a whim --> ", 2, "a whim"),
        ("- x <!-- importance 9: typed by hand -->", 5, "typed by hand"),
        ("- x <!-- importance 0 -->", 1, ""),
    ],
)
def test_a_mark_is_read_as_people_write_it(line: str, level: int, reason: str) -> None:
    assert importance_of(line) == Importance(level, reason)
    assert without_importance(line).rstrip() in (FACT, "- x")


@pytest.mark.parametrize(
    "line", [FACT, "- x <!-- a comment -->", "<!-- importance 5 -->", "- importance 5: no mark"]
)
def test_anything_else_is_none(line: str) -> None:
    assert importance_of(line) is None
    assert without_importance(line) == line


def test_a_reason_cannot_leave_its_mark() -> None:
    mark = Importance.of(4, "a --> b\n<!-- importance 5 -->").mark
    assert importance_of(with_mark(MARKED, mark)) == Importance(4, "a b ! importance 5")
    assert with_mark(MARKED, "") == FACT


def test_what_a_line_states_does_not_depend_on_its_mark() -> None:
    text = f"# Memory\n\n{MARKED}\n"
    assert guard.find_line("allergic to penicillin", text) == MARKED
    assert guard.without_list_mark(MARKED) == "Allergic to penicillin"
    assert Fact.of(MARKED) == Fact.of(FACT)
    assert most_similar(FACT, [MARKED], 1.0) == MARKED
    assert not guard.find_lost_facts(text, without_importance(text))
    assert memory_notice(without_importance(text), text) == ""


def test_a_version_says_that_only_the_importance_changed() -> None:
    before, after = f"{FACT}\n- Likes tea\n", f"{MARKED}\n- Likes tea\n"
    summary = guard.summary_of_change("MEMORY.md", before, after)
    assert summary == "rated: Allergic to penicillin"


def test_an_operation_finds_a_marked_line_and_leaves_it_its_mark() -> None:
    text = f"## Health\n\n{MARKED}\n"
    reworded = Operation(FACT, "- Allergic to penicillin and nuts", "## Health")
    expected = text.replace("penicillin", "penicillin and nuts")
    made = apply_operations(text, [reworded])
    assert (made.text, made.left) == (expected, ())
    assert apply_operations(made.text, [reworded]).text == expected
    assert FACT not in apply_operations(text, [Operation(FACT)]).text


def test_a_fact_that_stands_is_not_added_with_another_mark() -> None:
    for line in (FACT, f"{FACT} <!-- importance 1 -->"):
        text = f"# Memory\n\n{MARKED}\n"
        assert apply_operations(text, [Operation(new=line)]).text == text


def test_an_operation_marks_a_line_without_a_mark_and_no_other() -> None:
    mark = Operation(FACT, MARKED)
    assert apply_operations(f"{FACT}\n", [mark]).text == f"{MARKED}\n"
    by_hand = f"{FACT} <!-- importance 3 -->\n"
    assert apply_operations(by_hand, [mark]).text == by_hand


def test_a_merge_keeps_the_words_of_one_side_and_the_importance_of_the_other() -> None:
    base = f"# Memory\r\n\r\n{FACT}\r\n- Likes tea\r\n"
    ours = base.replace(FACT, MARKED)
    theirs = base.replace("penicillin", "penicillin and nuts") + "- New\r\n"
    expected = ours.replace("penicillin", "penicillin and nuts") + "- New\r\n"
    for one, other in ((ours, theirs), (theirs, ours)):
        merged = merge(base, one, other)
        assert (merged.text, merged.conflicts) == (expected, ())
    assert merge(ours, ours + "- New\r\n", base).text == base + "- New\r\n"
    higher, lower = ours.replace(" 5:", " 4:"), ours.replace(" 5:", " 2:")
    assert merge(base, higher, lower).text == merge(base, lower, higher).text == higher


def test_a_fact_that_stands_with_several_marks_goes_whole() -> None:
    text = f"# Memory\n\n{FACT}\n{MARKED}\n- Likes tea\n"
    assert apply_operations(text, [Operation(MARKED)]).text == "# Memory\n\n- Likes tea\n"
    reworded = apply_operations(text, [Operation(FACT, "- Allergic to nuts")])
    nuts = MARKED.replace("penicillin", "nuts")
    assert reworded.text == f"# Memory\n\n{nuts}\n- Likes tea\n"


_LINES = st.builds(
    "{}{}".format,
    st.sampled_from(["- tea", "- tea coffee", "- tea coffee Ulm", "## A", "- lives in Ulm", "(x)"]),
    st.sampled_from(["", " <!-- importance 5: a -->", " <!-- importance 2 -->"]),
)
_TEXTS = st.lists(_LINES, max_size=8).map("\n".join)


def _count_lines(text: str) -> Counter[str]:
    return Counter(line.rstrip() for line in text.split("\n") if line.strip())


@given(_TEXTS, _TEXTS, _TEXTS)
def test_a_merge_of_marked_lines_has_the_same_either_way_and_loses_no_fact(
    base: str, ours: str, theirs: str
) -> None:
    merged = _count_lines(merge(base, ours, theirs).text)
    assert merged == _count_lines(merge(base, theirs, ours).text)
    facts = _count_lines(without_importance("\n".join(merged))).keys()
    for side in (ours, theirs):
        new = _count_lines(without_importance(side)) - _count_lines(without_importance(base))
        assert new.keys() <= facts
    assert merge(base, ours, base).text == merge(base, base, ours).text == ours


async def test_an_old_change_is_undone_and_the_importance_set_since_stays(home: RealHome) -> None:
    store = home.memory().store
    await home.learn(FACT, "- Likes tea")
    number = await home.learn("- Likes green tea", old="- Likes tea")
    path = home.folder / "workspace" / MEMORY
    path.write_text(path.read_text().replace(FACT, MARKED))
    await store.record_hand_edits()

    revert = home.versions.plan_undo(number)

    assert not revert.conflicts
    assert revert.texts[MEMORY] == f"{MARKED}\n- Likes tea\n"


_RATED = {level: f"{FACT} <!-- importance {level} -->" for level in (1, 2, 4, 5)}


@pytest.mark.parametrize(
    ("before", "made", "later"),
    [
        (FACT, _RATED[4], _RATED[2]),
        (_RATED[5], _RATED[4], _RATED[1]),
        (_RATED[2], _RATED[1], _RATED[4]),
        (_RATED[4], _RATED[5], FACT),
        (_RATED[4], FACT, _RATED[1]),
    ],
)
async def test_undoing_a_rating_keeps_the_one_that_was_set_since(
    home: RealHome, before: str, made: str, later: str
) -> None:
    store, number = home.memory().store, 0
    for text in (before, made, later):
        expected, change = store.read(MEMORY), Change("you")
        number = await store.replace(MEMORY, f"{text}\n", expected=expected, change=change)
    assert home.versions.plan_undo(number - 1).texts.get(MEMORY, f"{later}\n") == f"{later}\n"
    assert home.versions.plan_undo(number).texts[MEMORY] == f"{made}\n"


@pytest.mark.parametrize("new", ["- Allergic to penicillin and nuts", "- Verträgt alles wieder"])
async def test_a_line_that_comes_back_by_undoing_keeps_the_importance_of_its_successor(
    home: RealHome, new: str
) -> None:
    await home.learn(_RATED[4])
    number = await home.learn(new, old=FACT)
    store = home.memory().store
    assert store.read(MEMORY) == f"{new} <!-- importance 4 -->\n"
    change = Change("you", "importance 1")
    await store.edit(MEMORY, lambda text: text.replace("importance 4", "importance 1"), change)

    assert home.versions.plan_undo(number).texts == {MEMORY: f"{_RATED[1]}\n"}


@given(_TEXTS, _TEXTS, _TEXTS)
@example(
    "- tea coffee\n- tea coffee <!-- importance 2 -->",
    "- tea <!-- importance 5: a -->\n- tea coffee",
    "- tea coffee <!-- importance 5: a -->",
)
def test_undoing_leaves_each_mark_that_changed_since(before: str, after: str, now: str) -> None:
    made = operations_between(before, after)
    undone = undo(after, now, before, made).text
    was, set_since = marks_of(after), marks_of(now)
    for line in _count_lines(without_importance(after)):
        if line in set_since and set_since[line] != was.get(line, ""):
            assert marks_of(undone).get(line, set_since[line]) == set_since[line]


async def test_search_prompts_and_ages_know_the_words_alone(home: RealHome) -> None:
    await home.learn(MARKED)
    result = await home.index.search(Query("penicillin", ("owner",)))
    assert [hit.passage.text for hit in result.hits] == [FACT]
    store = home.memory().store
    assert store.get_memory_context() == f"# Memory\n\n## Long-term Memory\n\n{FACT}"
    assert store.read_learned(MEMORY) == FACT
    home.clock.jump(3 * 86_400)
    by_hand = f"{FACT} <!-- importance 1 -->\n"
    await store.edit(MEMORY, lambda _: by_hand, Change("you"))
    assert store.fact_ages(MEMORY) == {FACT: 3}


async def test_why_follows_a_line_whatever_its_importance_was(home: RealHome) -> None:
    seqs = await home.say(KEY, "I am allergic to penicillin")
    cursor = home.tell(KEY, seqs, "They are allergic to penicillin.")
    await home.learn(MARKED, cursor=cursor)
    await home.memory().store.edit(MEMORY, lambda _: f"{FACT}\n", Change("you"))

    (found,) = (await home.explainer.why("penicillin", "owner")).found

    assert [step.author for step in found.steps] == ["dream"]
    assert found.steps[0].messages[0].text == "I am allergic to penicillin"


async def test_a_line_is_forgotten_with_its_mark_and_by_its_reason(home: RealHome) -> None:
    seqs = await home.say(KEY, "I am allergic to penicillin")
    await home.learn(MARKED, "- Likes tea", cursor=home.tell(KEY, seqs, "Allergic to penicillin."))
    assert (await home.forgetter.plan("health", "owner")).lines[0].text == MARKED

    plan = await home.forgetter.plan("allergic to penicillin", "owner")
    await home.forgetter.apply(plan)

    assert len(plan.messages) == 1
    assert (home.folder / "workspace" / MEMORY).read_text() == "- Likes tea\n"


async def test_a_reason_is_erased_as_any_text_is(home: RealHome) -> None:
    await home.learn(f"{FACT} <!-- importance 5: the accident in Ulm -->")
    await home.eraser.apply("accident in Ulm")
    assert files_with(home.folder, "accident") == []


async def test_what_waits_for_the_person_brings_no_importance(home: RealHome) -> None:
    pending = home.memory().pending
    await pending.add([MARKED], MEMORY, ["tool:web_fetch"])
    await pending.accept([1])
    assert (home.folder / "workspace" / MEMORY).read_text() == f"{FACT}\n"


async def test_a_retired_fact_stands_without_its_mark(home: RealHome) -> None:
    await home.learn(MARKED)
    store = home.memory().store
    await store.apply(MEMORY, [Operation(FACT)], Change("dream"), retired=[FACT])
    assert store.read("memory/retired.md").splitlines()[-1].endswith(": Allergic to penicillin")
    assert not store.facts(MEMORY)
