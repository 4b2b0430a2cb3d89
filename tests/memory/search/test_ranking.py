"""How the conversation around a hit counts, on small conversations made for it."""

from __future__ import annotations

from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from nanobot.memory.search.database import PLACES, TOOLS_FROM
from nanobot.memory.search.question import ParsedQuestion, Span, parse
from nanobot.memory.search.ranking import RankCandidate, Segments, rank, reach
from nanobot.memory.search.reading import ASKS, ENDS_ASKING

PLAIN = ParsedQuestion(("cat",))
DAY = date(2026, 3, 2)


def talk(count: int, **of: RankCandidate) -> dict[int, RankCandidate]:
    """Messages 1 to `count` of one segment, some replaced."""
    return {n: of.get(f"m{n}", RankCandidate(n, 1, "user")) for n in range(1, count + 1)}


def order(ranked: list[tuple[int, float]]) -> list[int]:
    return [id for id, _ in ranked]


def test_an_answer_without_the_words_follows_its_question() -> None:
    asking = RankCandidate(3, 1, "user", asks=ENDS_ASKING)
    ranked = rank(PLAIN, talk(6, m3=asking), {3: 10.0}, {})
    assert set(order(ranked)[:2]) == {3, 4}


def test_score_does_not_cross_a_pause() -> None:
    after = {4: RankCandidate(4, 4, "user"), 5: RankCandidate(5, 4, "user")}
    ranked = rank(PLAIN, talk(3) | after, {3: 10.0}, {})
    assert set(order(ranked)) == {1, 2, 3}


def test_the_output_of_a_tool_stands_beside_the_talk() -> None:
    output = RankCandidate(2, 2, "tool")
    assert order(rank(PLAIN, talk(3, m2=output), {2: 10.0}, {})) == [2]


def test_a_segment_that_fits_lifts_its_messages() -> None:
    candidates = {1: RankCandidate(1, 1), 9: RankCandidate(9, 9)}
    ranked = rank(PLAIN, candidates, {1: 5.0, 9: 5.0}, {9: 3.0})
    assert order(ranked) == [9, 1]


def test_the_named_speaker_is_likelier_but_nobody_is_left_out() -> None:
    candidates = {1: RankCandidate(1, 1, "user", "Ann"), 9: RankCandidate(9, 9, "user", "Ben")}
    question = ParsedQuestion(("cat",), speakers=frozenset({"Ben"}))
    ranked = rank(question, candidates, {1: 5.0, 9: 4.0}, {})
    assert order(ranked) == [9, 1]


def test_messages_from_the_days_named_and_shortly_after_are_likelier() -> None:
    question = ParsedQuestion(("cat",), spans=(Span(DAY, DAY),))
    candidates = {
        1: RankCandidate(1, 1, moment="2025-03-02T09:00:00+00:00"),
        5: RankCandidate(5, 5, moment="2026-03-09T09:00:00+00:00"),
        9: RankCandidate(9, 9),
    }
    assert order(rank(question, candidates, {1: 5.0, 5: 4.0, 9: 4.5}, {})) == [5, 1, 9]


@given(
    st.dictionaries(st.integers(1, 40), st.floats(0.01, 30), min_size=1),
    st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_every_match_is_ranked_and_scores_fall(own: dict[int, float], asks: list[bool]) -> None:
    candidates = {n: RankCandidate(n, 1 + n // 10, asks=ASKS * asks[n - 1]) for n in range(1, 41)}
    ranked = rank(PLAIN, candidates, own, {})
    scores = [score for _, score in ranked]
    assert own.keys() <= set(order(ranked)) <= reach(list(own))
    assert scores == sorted(scores, reverse=True)
    assert len(set(order(ranked))) == len(ranked)


def test_the_segment_with_more_and_rarer_words_fits_better() -> None:
    segments = Segments([1, 11, 21, 31, 41], [10, 10, 10, 10, 10])
    scores = segments.scores([[2, 3, 12], [2, 22]])
    assert max(scores, key=scores.__getitem__) == 1
    assert scores[11] < scores[1]
    assert segments.scores([]) == {}


def test_the_output_of_tools_and_other_streams_are_in_no_segment_of_talk() -> None:
    segments = Segments([PLACES + 1, PLACES + 5, PLACES + 9], [4, 4, 4])
    assert segments.scores([[3, PLACES + TOOLS_FROM + 2, 2 * PLACES + 1]]) == {}


def test_a_speakers_name_is_left_out_of_the_words() -> None:
    question = parse("What did Ann say about her cat?", {"Ann", "Ben"}, DAY)
    assert question.words == ("cat",)
    assert question.speakers == {"Ann"}


def test_two_names_prefer_nobody() -> None:
    question = parse("What do Ann and Ben cook?", {"Ann", "Ben"}, DAY)
    assert (question.words, question.speakers) == (("cook",), frozenset())


def test_a_first_name_is_enough_and_a_word_is_no_name() -> None:
    names = {"Ann Smith", "Will"}
    assert parse("where does ann live", names, DAY).speakers == {"Ann Smith"}
    assert parse("will it rain", names, DAY).speakers == frozenset()


def test_a_name_alone_is_looked_for() -> None:
    assert parse("Ann", {"Ann"}, DAY).words == ("ann",)
