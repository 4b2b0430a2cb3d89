"""The effect of the conversation around a hit, in small artificial conversations."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.memory.days import Span
from nanobot.memory.search.database import PLACES, TOOLS_FROM, TURN
from nanobot.memory.search.passages import ASKS, ENDS_ASKING
from nanobot.memory.search.ranking import (
    ParsedQuestion,
    RankCandidate,
    Segments,
    heirs,
    matches,
    parse,
    rank,
    reach,
    reply_matches,
    turn_of,
)

PLAIN = ParsedQuestion(("cat",))
DAY = date(2026, 3, 2)


A = TURN
"""Ids of turns are multiples of it: 3 * A is the third message, 3 * A + 1 its reply."""


def talk(count: int, *others: RankCandidate) -> dict[int, RankCandidate]:
    """Return turns 1 to `count` of one segment. `others` replace some, or are replies."""
    turns = {n * A: RankCandidate(n * A, A, "user") for n in range(1, count + 1)}
    return turns | {other.id: other for other in others}


def order(ranked: list[tuple[int, float]]) -> list[int]:
    return [id for id, _ in ranked]


def test_an_answer_without_the_words_follows_its_question() -> None:
    asking = RankCandidate(3 * A, A, "user", asks=ENDS_ASKING)
    ranked = rank(PLAIN, talk(6, asking), {3 * A: 10.0}, {})
    assert set(order(ranked)[:2]) == {3 * A, 4 * A}


def test_score_does_not_cross_a_pause() -> None:
    after = RankCandidate(4 * A, 4 * A, "user"), RankCandidate(5 * A, 4 * A, "user")
    ranked = rank(PLAIN, talk(3, *after), {3 * A: 10.0}, {})
    assert set(order(ranked)) == {1 * A, 2 * A, 3 * A}


def test_the_output_of_a_tool_stands_beside_the_talk() -> None:
    output = RankCandidate(2 * A, 2 * A, "tool")
    assert order(rank(PLAIN, talk(3, output), {2 * A: 10.0}, {})) == [2 * A]


def test_score_flows_from_turn_to_turn_and_over_the_replies() -> None:
    replies = [RankCandidate(n * A + 1, A, "assistant") for n in range(1, 7)]
    plain, chat = (rank(PLAIN, talk(6, *some), {3 * A: 10.0}, {}) for some in ((), replies))
    assert plain == chat


def test_a_reply_that_repeats_its_message_takes_no_others_place() -> None:
    own = matches(PLAIN, [{3 * A: 4.0, 3 * A + 1: 6.0}])
    reply = RankCandidate(3 * A + 1, A, "assistant")
    assert order(rank(PLAIN, talk(6, reply), own, {A: 2.0}))[-1] == 3 * A + 1


def test_what_only_a_reply_says_is_found_in_it_and_by_its_message() -> None:
    own = matches(PLAIN, [{3 * A + 1: 6.0}, {9 * A: 1.0}])
    reply = RankCandidate(3 * A + 1, A, "assistant")
    ranked = rank(PLAIN, talk(9, reply), own, {})
    assert order(ranked)[:2] == [3 * A + 1, 3 * A]


def test_a_reply_that_says_something_new_has_a_place_of_its_own() -> None:
    words = [{3 * A: 4.0, 3 * A + 1: 4.0}, {3 * A + 1: 6.0}]
    plain, news = (RankCandidate(3 * A + 1, A, "assistant", news=news) for news in (0, 1))
    ranked = [
        rank(PLAIN, talk(6, reply), matches(PLAIN, words), {A: 2.0}, reply_matches(words))
        for reply in (plain, news)
    ]
    assert [order(one)[0] for one in ranked] == [3 * A, 3 * A + 1]
    others = [[item for item in one if item[0] % A == 0] for one in ranked]
    assert others[0] == others[1]  # the messages keep their scores


def test_a_long_reply_ranks_like_a_short_one() -> None:
    mean, found = 20, list[float]()
    for length in (30, 300, 3_000):
        words = [{3 * A + 1: 4.0 / (1 + 1.2 * (0.25 + 0.75 * length / mean))}]  # as in bm25
        reply = RankCandidate(3 * A + 1, A, "assistant", news=length)
        ranked = rank(PLAIN, talk(6, reply), {}, {}, reply_matches(words), mean_length=mean)
        found.append(ranked[0][1])
    assert found == pytest.approx([found[0]] * 3)


def test_what_answers_a_question_of_the_agent_follows_it() -> None:
    asking = RankCandidate(3 * A + 1, A, "assistant", asks=ENDS_ASKING)
    ranked = rank(PLAIN, talk(9, asking), matches(PLAIN, [{3 * A + 1: 6.0}]), {})
    assert order(ranked)[0] == 4 * A


@pytest.mark.parametrize(
    "text",
    [
        "what did you recommend for dinner in Lisbon?",
        "the restaurant that you told me about",
        "your last suggestion for dinner",
        "what did the assistant say about dinner",
        "Was hast du mir zum Abendessen empfohlen?",
        "Qu'as-tu dit pour le dîner ?",
        "¿Qué me recomendaste para la cena?",
        "Che cosa mi hai consigliato per la cena?",
        "O que você me recomendou para o jantar?",
        "Wat heb je me toen voor het eten aangeraden?",
        "Что ты мне посоветовал на ужин?",
        "Co mi poleciłeś na kolację?",
        "Akşam yemeği için ne önermiştin?",
        "晚饭你说过什么?",
        "夕食にあなたが勧めた店は?",
    ],
)
def test_the_agents_reply_comes_first_where_the_question_is_about_what_it_said(text: str) -> None:
    reply = RankCandidate(3 * A + 1, A, "assistant")
    question = parse(text, (), DAY)
    assert order(rank(question, talk(6, reply), {3 * A: 10.0}, {}))[0] == 3 * A + 1


@pytest.mark.parametrize(
    "text",
    [
        "where did I want to have dinner?",
        "do you know what Ann said about dinner?",
        "what did I tell you about dinner?",
        "Was habe ich dir zum Abendessen gesagt?",
        "Weißt du, was Anna zum Essen gesagt hat?",
        "Tu sais ce que j'ai dit du dîner ?",
        "Что я тебе сказал про ужин?",
        "你知道我说过什么晚饭吗?",
    ],
)
def test_the_persons_message_comes_first_where_it_is_not(text: str) -> None:
    reply = RankCandidate(3 * A + 1, A, "assistant")
    question = parse(text, (), DAY)
    assert order(rank(question, talk(6, reply), {3 * A: 10.0}, {}))[0] == 3 * A


def test_a_segment_that_fits_lifts_its_messages() -> None:
    candidates = {1 * A: RankCandidate(1 * A, 1), 9 * A: RankCandidate(9 * A, 9)}
    ranked = rank(PLAIN, candidates, {1 * A: 5.0, 9 * A: 5.0}, {9: 3.0})
    assert order(ranked) == [9 * A, 1 * A]


def test_what_is_marked_to_keep_is_likelier_than_its_like_and_no_filter() -> None:
    found = {A: RankCandidate(A, A, kept=1), 9 * A: RankCandidate(9 * A, 9 * A)}
    assert order(rank(PLAIN, found, {A: 10.0, 9 * A: 10.0}, {})) == [A, 9 * A]
    assert order(rank(PLAIN, found, {A: 10.0, 9 * A: 20.0}, {})) == [9 * A, A]


def test_the_named_speaker_is_likelier_but_nobody_is_left_out() -> None:
    candidates = {
        A: RankCandidate(A, A, speaker="Ann"),
        9 * A: RankCandidate(9 * A, 9 * A, speaker="Ben"),
    }
    question = ParsedQuestion(("cat",), speakers=frozenset({"Ben"}))
    ranked = rank(question, candidates, {A: 5.0, 9 * A: 4.0}, {})
    assert order(ranked) == [9 * A, A]


def test_messages_from_the_days_named_and_shortly_after_are_likelier() -> None:
    question = ParsedQuestion(("cat",), spans=(Span(DAY, DAY),))
    candidates = {
        1 * A: RankCandidate(1 * A, 1, moment="2025-03-02T09:00:00+00:00"),
        5 * A: RankCandidate(5 * A, 5, moment="2026-03-09T09:00:00+00:00"),
        9 * A: RankCandidate(9 * A, 9),
    }
    ranked = rank(question, candidates, {1 * A: 5.0, 5 * A: 4.0, 9 * A: 4.5}, {})
    assert order(ranked) == [5 * A, 1 * A, 9 * A]


@given(
    st.dictionaries(st.integers(1, 40), st.floats(0.01, 30), min_size=1),
    st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_every_match_is_ranked_and_scores_fall(numbers: dict[int, float], asks: list[bool]) -> None:
    own = {n * A + n % 2: score for n, score in numbers.items()}
    candidates = {
        n * A + step: RankCandidate(n * A + step, 1 + n // 10, asks=ASKS * asks[n - 1])
        for n in range(1, 41)
        for step in (0, 1)
    }
    ranked = rank(PLAIN, candidates, own, {})
    scores = [score for _, score in ranked]
    assert own.keys() <= set(order(ranked))
    assert {turn_of(id) for id in order(ranked)} <= reach(list(own))
    loaded = {id: candidates[id] for id in heirs(own) & candidates.keys()}
    assert rank(PLAIN, loaded, own, {}) == ranked
    assert scores == sorted(scores, reverse=True)
    assert len(set(order(ranked))) == len(ranked)


def test_the_segment_with_more_and_rarer_words_fits_better() -> None:
    segments = Segments([A, 11 * A, 21 * A, 31 * A, 41 * A], [10] * 5)
    scores = segments.scores([[2 * A, 3 * A, 12 * A], [2 * A, 22 * A]])
    assert max(scores, key=scores.__getitem__) == A
    assert scores[11 * A] < scores[A]
    assert segments.scores([]) == {}


def test_replies_the_output_of_tools_and_other_streams_are_in_no_segment_of_talk() -> None:
    segments = Segments([PLACES + A, PLACES + 5 * A, PLACES + 9 * A], [4, 4, 4])
    others = [3 * A, PLACES + A + 1, PLACES + TOOLS_FROM + 2 * A, 2 * PLACES + A]
    assert segments.scores([others]) == {}


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


def test_what_is_passed_on_is_chosen_by_the_segment_as_well() -> None:
    segments = Segments([A, 11 * A], [10, 10])
    own = {2 * A: 5.0, 3 * A: 4.0, 12 * A: 3.0}
    assert set(segments.select_promising(own, {}, 2)) == {2 * A, 3 * A}
    assert set(segments.select_promising(own, {11 * A: 9.0}, 2)) == {2 * A, 12 * A}
    assert Segments([], []).select_promising(own, {}, 1) == {2 * A: 5.0}
