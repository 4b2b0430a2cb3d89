"""If there are more facts than a prompt can hold, it holds the most important ones, and search
finds all."""

from __future__ import annotations

import re
from datetime import date, timedelta

import pytest

from nanobot.memory.forget import Forgetter
from nanobot.memory.importance import Importance, with_mark
from nanobot.memory.line_changes import Operation
from nanobot.memory.recall import PERSON, FactUse, FactUses, select_facts, weight_of
from nanobot.memory.scopes import OWNER, Memories, Memory
from nanobot.memory.search import Query
from nanobot.memory.version import Change
from nanobot.memory.why import Explainer
from nanobot.providers.port import estimate_tokens
from nanobot.security.paths import Root
from tests.doubles.state import MemoryState
from tests.memory.homes import SCOPES, RealHome

MEMORY = "memory/MEMORY.md"
BUDGET = 16_000
SHARE = BUDGET // 4
TODAY = date(2026, 3, 2)


def fact(number: int) -> str:
    return f"- Number {number:04} of the things that are remembered"


class Large:
    """A home with 2,000 facts under twenty headings. Its prompts have room for a few hundred."""

    def __init__(self, home: RealHome) -> None:
        self.home, self.state = home, MemoryState()
        self.path = home.folder / "workspace" / MEMORY
        self.write([fact(number) for number in range(2_000)])
        self.start()

    def write(self, facts: list[str]) -> None:
        lines = ["# Memory"]
        for number, line in enumerate(facts):
            lines += ["", f"## Topic {number // 100}", ""] if number % 100 == 0 else []
            lines.append(line)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("\n".join(lines) + "\n")

    def start(self) -> Memory:
        """Open it as after a restart."""
        self.memories = Memories(
            Root(self.home.folder / "workspace"),
            self.home.folder / "state",
            self.home.clock,
            budget=BUDGET,
            uses=FactUses(self.state),
        )
        self.memory = self.memories.of(OWNER)
        return self.memory

    def mark(self, number: int, level: int) -> None:
        text = self.path.read_text()
        marked = with_mark(fact(number), Importance(level, "why").mark)
        self.path.write_text(text.replace(fact(number), marked))

    def numbers_in_prompt(self) -> list[int]:
        part = self.memory.recall.memory_part()
        assert estimate_tokens(part) <= SHARE
        return [int(found) for found in re.findall(r"- Number (\d{4})", part)]


@pytest.fixture
async def large(home: RealHome) -> Large:
    return Large(home)


async def test_the_prompt_keeps_its_share_and_says_where_the_others_are(large: Large) -> None:
    shown = large.numbers_in_prompt()
    part = large.memory.recall.memory_part()
    assert estimate_tokens(part) > 0.9 * SHARE
    assert "## Topic 19\n\n- Number" in part
    assert "## Topic 3\n" not in part
    assert f"({2_000 - len(shown):,} more facts are in memory/MEMORY.md" in part
    assert "search_memory finds the others" in part
    assert "importance" not in part
    assert large.memory.recall.count_left_out(MEMORY) == 2_000 - len(shown)
    # Nothing tells them apart but their order: the latest stand last in the file.
    assert shown == list(range(2_000 - len(shown), 2_000))


async def test_facts_are_chosen_while_the_database_is_away(large: Large) -> None:
    shown = large.numbers_in_prompt()
    large.state.is_far = True
    assert large.numbers_in_prompt() == shown


async def test_importance_age_and_use_say_which_facts_are_shown(large: Large) -> None:
    await large.memory.store.record_hand_edits()
    large.home.clock.jump(200 * 86_400)
    new = [fact(number) for number in range(2_000)]
    new[100] = "- Number 0100 was written lately"
    large.write(new)
    for number, level in ((200, 5), (201, 4), (202, 3), (1_999, 2), (1_998, 1)):
        large.mark(number, level)
    await large.memory.store.record_hand_edits()
    large.memory.recall.note_use([fact(300)])
    large.memory.recall.refresh()
    large.home.clock.jump(86_400)

    shown = large.numbers_in_prompt()

    assert {200, 201, 100, 300} <= {*shown}  # important, important, new, looked up
    assert not {202, 1_999, 1_998, 301} & {*shown}  # usual and old; unimportant, though last
    for number, reason in (
        (200, "in the prompt: importance 5 (why), written 201 days ago"),
        (300, "in the prompt: importance 3 (default), written 201 days ago, looked up on 1 day"),
        (202, "not in the prompt (no room), but found by search: importance 3 (why), written 201"),
    ):
        line = next(one for one in large.path.read_text().splitlines() if f" {number:04} " in one)
        assert large.memory.recall.standing_of(MEMORY, line).startswith(reason)


async def test_the_choice_is_the_same_all_day_whatever_is_looked_up_and_after_a_restart(
    large: Large,
) -> None:
    part = large.memory.recall.memory_part()
    large.memory.recall.note_use([fact(number) for number in range(50)])
    assert large.memory.recall.memory_part() == part
    assert large.start().recall.memory_part() == part
    large.home.clock.jump(86_400)
    assert {*range(50)} <= {*large.numbers_in_prompt()}


async def test_what_dream_notes_down_of_facts_counts_from_the_next_day_on(large: Large) -> None:
    await large.memory.store.record_hand_edits()
    large.home.clock.jump(30 * 86_400)
    large.write([f"- Number {n:04} is new" if n < 9 else fact(n) for n in range(2_000)])
    await large.memory.store.record_hand_edits()
    part = large.memory.recall.memory_part()
    large.memory.recall.refresh()
    assert large.memory.recall.memory_part() == part
    assert large.start().recall.memory_part() == part
    large.home.clock.jump(86_400)
    assert {*range(9)} <= {*large.numbers_in_prompt()}
    part = large.memory.recall.memory_part()
    large.memory.recall.refresh()
    assert large.memory.recall.memory_part() == part


async def test_what_the_prompt_does_not_hold_is_found(large: Large) -> None:
    shown = large.numbers_in_prompt()
    for number in (0, 3, 777, 1_234):
        assert number not in shown
        result = await large.home.index.search(Query(f"number {number:04}", (OWNER,), limit=1))
        assert [hit.passage.text.split("\n")[-1] for hit in result.hits] == [fact(number)]


async def test_more_facts_may_be_learned_than_a_prompt_holds(large: Large) -> None:
    learned = Operation(new="- Learned one more", section="## Topic 3")
    await large.memory.store.apply(MEMORY, [learned], Change("dream"))
    assert f"{fact(399)}\n- Learned one more\n" in large.path.read_text()


async def test_todays_notes_keep_a_part_of_the_share(large: Large) -> None:
    await large.memory.store.append_today("buy milk")
    part = large.memory.recall.memory_part()
    assert "buy milk" in part
    for number in range(300):
        await large.memory.store.append_today(f"note {number} of a long day with much to write")
    large.numbers_in_prompt()
    assert "read_file memory/MEMORY.md, and the notes" in large.memory.recall.memory_part()


async def test_a_learning_model_sees_what_its_texts_are_about(large: Large) -> None:
    seen = large.memory.recall.select_related(MEMORY, ["It is about number 0007."], 1_000)
    assert fact(7) in seen
    assert fact(8) not in seen
    assert estimate_tokens(seen) <= 1_020
    assert "more lines of the file are not shown; they are kept)" in seen


async def test_nothing_is_noted_down_while_there_is_room(home: RealHome) -> None:
    large = Large(home)
    large.path.write_text(f"{fact(1)}\n")
    large.memory.recall.note_use([fact(1)])
    large.memory.recall.refresh()
    assert large.state.read("facts") is None
    assert large.memory.recall.memory_part() == f"# Memory\n\n## Long-term Memory\n\n{fact(1)}"


async def test_why_and_search_note_down_what_they_led_to_and_forgetting_takes_it_out(
    large: Large,
) -> None:
    home = large.home
    memories = large.memories
    explainer = Explainer(memories, home.sessions, SCOPES)
    forgetter = Forgetter(memories, explainer, home.sessions, SCOPES, home.clock)

    def count_used() -> int:
        return sum(bool(one.used) for one in FactUses(large.state).load().get(OWNER, {}).values())

    (found,) = (await explainer.why("number 0042", OWNER)).found
    assert found.standing.startswith(
        "not in the prompt (no room), but found by search: importance 3"
    )
    assert count_used() == 1
    await forgetter.apply(await forgetter.plan("number 0042", OWNER))
    assert count_used() == 0


async def test_what_does_not_stand_any_more_is_not_remembered_of(large: Large) -> None:
    recall = large.memory.recall
    recall.note_use([fact(1), fact(2)])
    recall.refresh()
    known = FactUses(large.state).load()[OWNER]
    assert len(known) == 2_000
    assert sum(bool(one.used) for one in known.values()) == 2
    large.write([fact(number) for number in range(2, 2_000)])
    recall.refresh()
    known = FactUses(large.state).load()[OWNER]
    assert sum(bool(one.used) for one in known.values()) == 1
    large.path.write_text("")
    recall.refresh()
    assert FactUses(large.state).load() == {}


async def test_what_is_known_of_the_person_is_chosen_as_well(large: Large) -> None:
    lines = [fact(number) for number in range(300)]
    lines[5] = with_mark(lines[5], Importance(5, "name").mark)
    (large.home.folder / "workspace" / PERSON).write_text("\n".join(["# User", *lines]))
    part = large.memory.recall.person_part()
    assert estimate_tokens(part) <= BUDGET // 8
    assert fact(5) in part
    assert fact(6) not in part
    assert "more facts are in USER.md" in part


def test_the_most_important_always_comes_first() -> None:
    ago = TODAY - timedelta(days=3_000)
    forgotten, busy = FactUse(ago), FactUse(TODAY, tuple(TODAY - timedelta(n) for n in range(1, 9)))
    assert weight_of(5, forgotten, TODAY) > weight_of(4, busy, TODAY)


def test_age_and_use_count_a_step_of_importance_each() -> None:
    ago = TODAY - timedelta(days=3_000)
    used = tuple(TODAY - timedelta(n) for n in range(1, 9))
    old, new, busy = FactUse(ago), FactUse(TODAY), FactUse(TODAY, used)
    assert 3 <= weight_of(3, old, TODAY) < weight_of(3, new, TODAY) <= 4
    assert weight_of(4, old, TODAY) < weight_of(3, busy, TODAY) < 5
    assert weight_of(3, FactUse(None, used), TODAY) > weight_of(3, FactUse(None, used[:1]), TODAY)
    assert weight_of(3, FactUse(TODAY, (TODAY,)), TODAY) == weight_of(3, new, TODAY)


def test_a_fact_keeps_what_is_indented_under_it_and_the_headings_above() -> None:
    text = (
        "# A\n\nintro\n\n## B\n\n- one\n  more of one\n- two\n\n### C\n\n- three\n\n## D\n\n- four"
    )
    facts = {"- one", "more of one", "- two", "- three", "- four"}
    weights = {"more of one": 2, "- three": 1}
    room = 20
    selection = select_facts(text, facts, room, lambda line: weights.get(line.strip(), 0))
    assert selection.text == "# A\n\n## B\n\n- one\n  more of one\n\n### C\n\n- three"
    assert selection.left_out == 2
