"""The LoCoMo benchmark, on a small made-up conversation in its format."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.locomo import add_replies, conversations, measure

SAMPLE = [
    {
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Ben",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "What did you name the cat?"},
                {"speaker": "Ben", "dia_id": "D1:2", "text": "Oscar!", "blip_caption": "a cat"},
            ],
            "session_2_date_time": "9:00 am on 1 June, 2023",
            "session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "I went sailing."}],
        },
        "qa": [
            {"question": "What is the cat called?", "evidence": ["D1:2"], "category": 4},
            {"question": "Who sailed?", "evidence": ["D2:1; D9:9"], "category": 1},
            {"question": "Who flew?", "evidence": [], "category": 5},
        ],
    }
]


def test_a_conversation_becomes_messages_with_names_times_and_captions(tmp_path: Path) -> None:
    path = tmp_path / "sample.json"
    path.write_text(json.dumps(SAMPLE))
    (conversation,) = conversations(path)
    assert [message.name for message in conversation.messages] == ["Ann", "Ben", "Ann"]
    assert conversation.messages[1].content == "Oscar! [image: a cat]"
    assert str(conversation.messages[2].timestamp) == "2023-06-01 09:00:00+00:00"
    assert [question.evidence for question in conversation.questions] == [{2}, {3}]


def test_recall_is_the_share_of_evidence_found(tmp_path: Path) -> None:
    path = tmp_path / "sample.json"
    path.write_text(json.dumps(SAMPLE))
    figures = measure(conversations(path))
    assert figures.keys() == {"index", "grep", "fts5", "conversations"}
    assert figures["index"]["1-4"]["recall@10"] == 1.0
    assert figures["index"]["1-4"]["visible"] == 1.0
    assert figures["index"]["1-4"]["questions"] == 2


@pytest.mark.parametrize(("shape", "reply"), [("short", "Got it!"), ("echo", "Oscar! [image:")])
def test_in_the_shape_of_a_chat_a_reply_follows_each_message_and_is_no_evidence(
    tmp_path: Path, shape: str, reply: str
) -> None:
    path = tmp_path / "sample.json"
    path.write_text(json.dumps(SAMPLE))
    (conversation,) = conversations(path)
    chat = add_replies(conversation, shape)
    assert [message.role for message in chat.messages] == ["user", "assistant"] * 3
    assert [message.seq for message in chat.messages] == [1, 2, 3, 4, 5, 6]
    assert reply in chat.messages[3].content
    assert [question.evidence for question in chat.questions] == [{3}, {5}]


def test_half_of_the_evidence_can_be_said_by_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "sample.json"
    path.write_text(json.dumps(SAMPLE))
    (conversation,) = conversations(path)
    chat = add_replies(conversation, "replies")
    texts = {message.seq: message for message in chat.messages}
    assert list(texts) == list(range(1, len(texts) + 1))
    said = [texts[seq] for question in chat.questions for seq in question.evidence]
    assert [one.content for one in said] == ["Oscar! [image: a cat]", "I went sailing."]
    for reply in (one for one in said if one.role == "assistant"):
        assert texts[reply.seq - 1].role == "user"
    assert chat == add_replies(conversation, "replies")


def test_with_facts_a_message_is_found_by_a_word_of_its_observation(tmp_path: Path) -> None:
    recorded = {
        "observation": {
            "session_2_observation": {"Ann": [["Ann the yachtswoman went sailing", "D2:1"]]}
        },
        "session_summary": {"session_2_summary": "Ann spoke of the sea."},
        "qa": [{"question": "Any yachtswoman?", "evidence": ["D2:1"], "category": 4}],
    }
    path = tmp_path / "sample.json"
    path.write_text(json.dumps([SAMPLE[0] | recorded]))
    chats = [
        add_replies(one, shape)
        for one in conversations(path)
        for shape in ("none", "short", "echo")
    ]
    for chat in chats:
        without, with_facts = (measure([chat], has_facts=has_facts) for has_facts in (False, True))
        assert without["index"]["1-4"]["recall@10"] == 0.0
        assert with_facts["index"]["1-4"]["recall@10"] == 1.0


@pytest.mark.parametrize("content", ["{}", "[{}]", "no"])
def test_a_file_in_another_format_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "sample.json"
    path.write_text(content)
    with pytest.raises((ValueError, KeyError, TypeError)):
        conversations(path)


@pytest.mark.parametrize(("content", "code"), [(None, 0), ("no", 2)])
def test_it_says_so_where_the_file_is_absent_or_wrong(
    tmp_path: Path, content: str | None, code: int
) -> None:
    path = tmp_path / "sample.json"
    if content is not None:
        path.write_text(content)
    command = [sys.executable, "bench/locomo.py", "--data", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert str(path) in done.stderr
