"""Twenty questions in Chinese, Japanese and Korean find their message, and only it comes first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.memory.analysis import content_words, prepare_text, words_of

MESSAGES = {
    1: "我妹妹住在上海,下个月要搬到北京去。",
    2: "昨天晚上我们在海底捞吃了火锅,味道很好。",
    3: "我的猫叫橘子,它今年三岁了。",
    4: "医生说我对青霉素过敏。",
    5: "明天下午三点在图书馆见面吧!",
    6: "他買了一台新的筆記型電腦。",
    7: "京都の旅行はとても楽しかったです。",
    8: "東京都の新しいアパートに引っ越しました。",
    9: "母の誕生日は五月八日です。",
    10: "毎朝コーヒーを二杯飲みます。",
    11: "犬の名前はポチです。",
    12: "ｶﾀｶﾅで書いたメモを失くした。",
    13: "서울에서 부산까지 기차를 탔어요.",
    14: "제 여동생 이름은 지민이에요.",
    15: "김치찌개를 제일 좋아해요.",
    16: "비밀번호를 바꿨어요",
    17: "Nous avons dîné au café de la gare.",
    18: "My sister moved to the coast last spring.",
}

TABLE = [
    ("上海", 1),
    ("北京", 1),
    ("火锅", 2),
    ("猫", 3),
    ("橘子", 3),
    ("青霉素过敏", 4),
    ("图书馆", 5),
    ("電腦", 6),
    ("京都の旅行", 7),
    ("東京", 8),
    ("引っ越し", 8),
    ("誕生日", 9),
    ("コーヒー", 10),
    ("犬", 11),
    ("ポチ", 11),
    ("カタカナ", 12),
    ("서울", 13),
    ("기차", 13),
    ("여동생 이름", 14),
    ("김치", 15),
]


@pytest.fixture(scope="module")
def table() -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(":memory:")
    db.execute(
        "CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = 'porter unicode61"
        " remove_diacritics 2')"
    )
    rows = [(number, prepare_text(text)) for number, text in MESSAGES.items()]
    db.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", rows)
    db.commit()
    yield db
    db.close()


def search(db: sqlite3.Connection, question: str) -> list[int]:
    expression = " OR ".join(f'"{word}"' for word in content_words(words_of(question)))
    found = db.execute("SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank", (expression,))
    return [row[0] for row in found]


@pytest.mark.parametrize(("question", "expected"), TABLE)
def test_a_question_of_any_length_finds_its_message_first(
    table: sqlite3.Connection, question: str, expected: int
) -> None:
    assert search(table, question)[0] == expected


def test_the_table_has_twenty_questions_and_some_of_one_and_two_characters() -> None:
    assert len(TABLE) == 20
    assert {1, 2} <= {len(question) for question, _ in TABLE}


def test_one_character_and_a_pair_match_within_a_run() -> None:
    assert prepare_text("東京都").split() == ["東", "東京", "京", "京都", "都"]
    assert words_of("東京都") == ["東京", "京都"]
    assert words_of("東") == ["東"]


@pytest.mark.parametrize(
    ("question", "expected"), [("diner cafe", 17), ("CAFÉ", 17), ("sisters", 18), ("MOVING", 18)]
)
def test_case_accents_and_english_endings_do_not_matter(
    table: sqlite3.Connection, question: str, expected: int
) -> None:
    assert search(table, question)[:1] == [expected]


def test_ascii_is_stored_as_it_is() -> None:
    assert prepare_text("What's up, doc?\n") == "What's up, doc?\n"


def test_stop_words_go_unless_nothing_else_is_there() -> None:
    assert content_words(words_of("What did you say about the cat?")) == ["cat"]
    assert content_words(words_of("who are you")) == ["who", "are", "you"]


@given(st.text(max_size=60))
def test_any_text_can_be_stored_and_asked_for(table: sqlite3.Connection, text: str) -> None:
    clean = text.encode("utf-8", "replace").decode()
    table.execute("INSERT INTO words (text) VALUES (?)", (prepare_text(clean),))
    expression = " OR ".join(f'"{word}"' for word in content_words(words_of(clean)))
    if expression:
        table.execute("SELECT * FROM words WHERE words MATCH ?", (expression,)).fetchone()
    table.rollback()
