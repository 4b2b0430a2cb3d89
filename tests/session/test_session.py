from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.session.session import Contents, Session
from nanobot.testing import FakeClock
from tests.session.support import NOON, asks, reply, result, texts, user


@pytest.fixture
def session(clock: FakeClock) -> Session:
    return Session("cli:direct", clock)


def add_turns(session: Session, *turns: str) -> Session:
    for turn in turns:
        session.add_message(user(f"ask {turn}", turn))
        session.add_message(reply(f"answer {turn}", turn))
    session.apply_staged()
    return session


def test_staged_messages_are_numbered_and_not_visible_until_applied(session: Session) -> None:
    first = session.add_message(user("hello"))
    second = session.add_message(reply("hi"))
    assert (first.seq, second.seq, session.next_seq) == (1, 2, 3)
    assert first.timestamp
    assert not session.messages
    assert session.get_history() == []
    session.apply_staged()
    assert list(session.messages) == [first, second]
    assert session.get_history() == [first, second]


def test_staged_lines_are_the_lines_of_the_file(session: Session) -> None:
    session.add_message(user("a\u2028b"))
    session.set_metadata(model="m")
    lines = session.encode_staged()
    assert lines.endswith("\n")
    assert [json.loads(line).get("role") for line in lines.splitlines()] == ["user", None]
    assert session.apply_staged() == lines
    assert session.encode_staged() == ""


def test_rollback_leaves_no_trace(session: Session) -> None:
    add_turns(session, "1")
    session.add_message(user("x"))
    session.set_metadata(model="m")
    session.clear("7")
    session.rollback()
    assert not session.has_staged
    assert session.encode_staged() == ""
    assert session.next_seq == 3
    session.apply_staged()
    assert len(session.messages) == 2
    assert dict(session.metadata) == {}


def test_a_turn_begins_without_what_a_broken_one_staged(
    session: Session, warnings: list[str]
) -> None:
    session.add_message(user("lost"))
    session.begin_turn()
    assert session.add_message(user("kept")).seq == 1
    assert len(warnings) == 1


def test_a_new_epoch_empties_the_window_and_is_asked_for_once(session: Session) -> None:
    add_turns(session, "1")
    epoch, revision = session.epoch, session.revision
    session.clear(12)
    assert texts(session.messages) == ["ask 1", "answer 1"]
    session.apply_staged()
    assert texts(session.messages) == []
    assert session.get_history() == []
    assert (session.epoch == epoch, session.revision == revision) == (False, False)
    session.clear(12)
    assert session.encode_staged() == ""
    session.clear(2)
    session.apply_staged()
    assert session.epoch.endswith("/2")
    assert session.next_seq == 3


def test_an_id_that_a_lost_journal_gave_before_asks_for_an_epoch_of_its_own(
    session: Session,
) -> None:
    for name in ("1", "2"):
        add_turns(session, name)
        session.clear(12)
        session.apply_staged()
        assert texts(session.messages) == []
    assert session.epoch_seq == 4


def test_a_retracted_turn_leaves_the_window_alone(session: Session) -> None:
    add_turns(session, "1", "2", "3")
    revision = session.revision
    gone = session.retract("2")
    assert texts(gone) == ["ask 2", "answer 2"]
    session.apply_staged()
    assert texts(session.messages) == ["ask 1", "answer 1", "ask 3", "answer 3"]
    assert texts(session.get_history()) == texts(session.messages)
    assert session.revision != revision
    assert session.retract("2") == ()
    assert not session.has_staged


def test_consolidated_messages_leave_the_window_and_it_never_goes_back(session: Session) -> None:
    add_turns(session, "1", "2")
    assert session.mark_consolidated(2)
    assert texts(session.messages) == ["ask 2", "answer 2"]
    assert session.last_consolidated == 2
    assert session.mark_consolidated(1) == ""
    assert session.last_consolidated == 2
    with pytest.raises(ValueError, match="ends at 4"):
        session.mark_consolidated(5)


def test_consolidation_goes_on_beside_a_turn_that_is_staged(session: Session) -> None:
    add_turns(session, "1", "2")
    session.add_message(user("ask 3", "3"))
    session.set_metadata(model="m")
    session.mark_consolidated(2)
    assert texts(session.messages) == ["ask 2", "answer 2"]
    session.apply_staged()
    assert texts(session.messages) == ["ask 2", "answer 2", "ask 3"]
    assert session.last_consolidated == 2


def test_a_turn_whose_beginning_was_consolidated_goes_on_in_the_window(session: Session) -> None:
    for message in (user("q"), asks("a"), result("a"), asks("b"), result("b"), reply("x")):
        session.add_message(message)
    session.apply_staged()
    session.mark_consolidated(3)
    assert [m.role for m in session.get_history()] == ["assistant", "tool", "assistant"]


def test_history_holds_the_newest_messages_from_a_question_on(session: Session) -> None:
    turn = (asks("a"), result("a"), reply("done"))
    for message in (user("1"), *turn, user("2"), *turn, user("3"), *turn):
        session.add_message(message)
    session.apply_staged()
    whole = session.get_history(0)
    assert len(whole) == 12
    for most in range(1, 14):
        shown = session.get_history(most)
        assert shown == whole[-(min(most, 12) // 4 * 4) :] if most >= 4 else shown == []
    assert session.get_history(0, after=8) == whole[8:]


def test_history_is_short_unless_more_is_wanted(session: Session) -> None:
    add_turns(session, *map(str, range(60)))
    assert len(session.get_history()) == 50
    assert len(session.get_history(0)) == 120


def test_what_is_discarded_leaves_the_window_for_good(session: Session) -> None:
    add_turns(session, "1", "2")
    assert session.discard(7) == 4
    session.apply_staged()
    assert session.messages == ()
    assert session.epoch_seq == 4
    add_turns(session, "3")
    assert texts(session.messages) == ["ask 3", "answer 3"]


def test_appending_changes_no_revision(session: Session) -> None:
    add_turns(session, "1")
    revision = session.revision
    add_turns(session, "2")
    session.set_metadata(model="m")
    session.apply_staged()
    assert session.revision == revision


def test_metadata_is_merged_and_none_removes(session: Session) -> None:
    session.set_metadata(model="a", tone="dry")
    session.set_metadata(model="b", tone=None)
    session.apply_staged()
    assert dict(session.metadata) == {"model": "b"}


def test_several_staged_changes_are_applied_in_order(session: Session) -> None:
    add_turns(session, "1")
    session.add_message(user("late"))
    session.clear("9")
    session.set_metadata(model="m")
    session.add_message(user("fresh"))
    session.apply_staged()
    assert texts(session.messages) == ["fresh"]
    assert dict(session.metadata) == {"model": "m"}


def test_what_a_person_edited_is_taken_over(clock: FakeClock) -> None:
    session = add_turns(Session("k", clock), "1")
    same = Contents(NOON, NOON, session.messages, next_seq=3)
    session.load_edited(same)
    assert session.revision == 0
    session.load_edited(Contents(NOON, NOON, session.messages[:1], next_seq=2))
    assert session.revision == 1
    assert session.next_seq == 3
    session.add_message(user("staged"))
    with pytest.raises(RuntimeError):
        session.load_edited(same)


STEPS = ["turn", "tools", "undo", "new", "consolidate", "discard", "drop"]


def take(session: Session, step: str, number: int) -> None:
    match step:
        case "turn":
            add_turns(session, str(number))
        case "tools":
            for message in (user("q"), asks("a"), result("a"), reply("x")):
                session.add_message(message)
        case "undo" if session.messages:
            session.retract(session.messages[-1].turn_id)
        case "new":
            session.clear(number + 1)
        case "consolidate" if session.messages:
            session.mark_consolidated(session.messages[0].seq)
        case "discard":
            session.discard(number + 1)
        case "drop":
            session.add_message(user("gone"))
            session.rollback()


@given(st.lists(st.sampled_from(STEPS)))
def test_whatever_happens_history_is_the_sendable_part_of_the_window(steps: list[str]) -> None:
    session = Session("k", FakeClock())
    for number, step in enumerate(steps):
        take(session, step, number)
        session.apply_staged()
        history = session.get_history()
        assert set(history) <= set(session.messages)
        cut = session.last_consolidated > session.epoch_seq
        assert not history or cut or history[0].role == "user"
        if not cut and not any(m.tool_calls or m.role == "tool" for m in session.messages):
            users = [at for at, m in enumerate(session.messages) if m.role == "user"]
            assert history == list(session.messages[users[0] :] if users else ())
