"""A sender is the same person under all their ids, and never another one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.errors import SendRefused, StorageError
from nanobot.io import temporary_name
from nanobot_whatsapp.people import People, Person, id_of, is_group, is_person, jid_of
from tests.scratch import scratch

NUMBER, OTHER, LID, USER = "15557770000", "15557770001", "888@lid", "US.134912"
GROUP = "120363040000000000@g.us"


@pytest.fixture
def people(tmp_path: Path) -> People:
    """An empty list of people."""
    return People(tmp_path)


def admit_person(people: People, *ids: str) -> str:
    """Write as a person with these ids, who gets access."""
    chat_id = people.chat_of(ids)
    people.mark_admitted(chat_id)
    return chat_id


@pytest.mark.parametrize(
    ("jid", "id"),
    [
        (f"{NUMBER}@s.whatsapp.net", NUMBER),
        (f"{NUMBER}:12@s.whatsapp.net", NUMBER),
        (f"{NUMBER}@c.us", NUMBER),
        (f"+{NUMBER}", NUMBER),
        (LID, LID),
        ("888:3@lid", LID),
        (GROUP, GROUP),
        (USER, USER),
        ("status@broadcast", "status@broadcast"),
    ],
)
def test_an_id_has_neither_device_nor_server(jid: str, id: str) -> None:
    assert id_of(jid) == id
    assert id_of(jid_of(id)) == id


def test_the_forms_of_ids_are_told_apart() -> None:
    assert all(map(is_person, (NUMBER, LID, USER)))
    assert all(map(is_group, (GROUP, "Y2FwaV9ncm91cDoxNzA1NTU1MDEz")))
    assert not any(map(is_group, (NUMBER, LID, USER, "Ada")))


@pytest.mark.parametrize(
    ("ids", "chat_id"),
    [((LID, NUMBER), NUMBER), ((LID,), LID), ((USER,), USER), ((f"{NUMBER}:1@c.us",), NUMBER)],
)
def test_a_chat_is_the_number_else_what_there_is(
    people: People, ids: tuple[str, ...], chat_id: str
) -> None:
    assert people.chat_of(ids) == chat_id


def test_a_chat_that_began_under_a_lid_stays_there_when_the_number_is_learned(
    people: People, tmp_path: Path
) -> None:
    assert admit_person(people, LID) == LID
    assert people.chat_of((NUMBER, LID)) == LID
    assert people.chat_of((NUMBER,)) == LID
    people.save()
    again = People(tmp_path)
    assert again.chat_of((NUMBER,)) == LID
    assert again.address(LID) == NUMBER


def test_lists_of_people_match_any_id_in_any_form(people: People) -> None:
    sender = people.sender(Person((NUMBER, LID), "Ada"))
    assert (sender.id, sender.name) == (NUMBER, "Ada")
    assert set(sender.also) == {f"+{NUMBER}", f"{NUMBER}@s.whatsapp.net", LID}


def test_two_chats_that_turn_out_to_be_one_persons_become_one(people: People) -> None:
    assert admit_person(people, LID) == LID
    assert admit_person(people, NUMBER) == NUMBER
    assert people.chat_of((NUMBER, LID)) == NUMBER
    assert people.chat_of((LID,)) == NUMBER
    assert people.address(LID) == NUMBER


def test_a_conversation_is_not_lost_to_somebody_who_had_none(people: People) -> None:
    people.chat_of((NUMBER,))
    assert admit_person(people, LID) == LID
    assert people.chat_of((NUMBER, LID)) == LID


def test_a_number_that_passed_to_somebody_else_does_not_pass_the_conversation_on(
    people: People, tmp_path: Path
) -> None:
    assert admit_person(people, NUMBER, LID) == NUMBER
    stranger = admit_person(people, NUMBER, "999@lid")
    assert stranger == "999@lid"
    people.save()
    for each in (people, People(tmp_path)):
        assert each.chat_of((NUMBER,)) == stranger
        assert each.chat_of((LID,)) == NUMBER
        assert each.address(stranger) == NUMBER
        assert each.address(NUMBER) == LID


def test_what_was_allowed_to_a_number_does_not_pass_on_with_it(people: People) -> None:
    admit_person(people, NUMBER, LID)
    heir = people.sender(Person((NUMBER, "999@lid")))
    assert (heir.id, heir.also) == ("999@lid", ())
    assert people.sender(Person((LID,))).id == NUMBER


def test_a_number_that_somebody_gave_up_makes_nobody_of_its_next_owner(people: People) -> None:
    assert admit_person(people, NUMBER, USER) == NUMBER
    assert admit_person(people, OTHER, "US.2") == OTHER
    people.change_id(NUMBER, OTHER)
    assert people.chat_of(("US.2",)) == OTHER
    assert people.address(OTHER) == "US.2"
    assert people.chat_of((USER,)) == people.chat_of((OTHER,)) == NUMBER
    assert OTHER not in people.sender(Person((USER,))).also


def test_a_new_account_and_number_join_what_was_said_meanwhile(people: People) -> None:
    admit_person(people, NUMBER, USER)
    assert admit_person(people, OTHER, "US.2") == OTHER
    people.change_id(NUMBER, OTHER)
    people.change_id(USER, "US.2")
    assert people.chat_of((OTHER, "US.2")) == NUMBER
    assert people.address(OTHER) == OTHER


def test_somebody_who_changed_their_number_stays_who_they_are(people: People) -> None:
    assert admit_person(people, NUMBER) == NUMBER
    people.change_id(NUMBER, OTHER)
    people.change_id(NUMBER, OTHER)  # reported twice
    assert people.chat_of((OTHER,)) == NUMBER
    assert people.address(NUMBER) == OTHER
    assert people.chat_of((NUMBER, USER)) == USER  # the old number has a new owner


def test_a_move_that_is_told_late_joins_what_was_said_meanwhile(people: People) -> None:
    admit_person(people, NUMBER)
    assert admit_person(people, OTHER) == OTHER
    people.change_id(NUMBER, OTHER)
    assert people.chat_of((OTHER,)) == NUMBER
    assert people.address(OTHER) == OTHER


def test_a_new_number_of_the_same_account_is_where_they_are_reached(people: People) -> None:
    admit_person(people, NUMBER, LID)
    assert people.chat_of((OTHER, LID)) == NUMBER
    assert people.address(NUMBER) == OTHER
    assert people.chat_of((NUMBER, LID)) == NUMBER
    assert people.address(NUMBER) == NUMBER


def test_an_account_in_another_kind_of_api_is_no_other_person(people: People) -> None:
    admit_person(people, NUMBER, LID)
    assert people.chat_of((NUMBER, USER)) == NUMBER
    assert people.chat_of((USER,)) == NUMBER


@pytest.mark.parametrize("chat_id", [GROUP, LID, USER, NUMBER])
def test_what_was_never_met_is_written_to_as_it_is(people: People, chat_id: str) -> None:
    assert people.address(chat_id) == chat_id


def test_a_number_is_written_to_however_it_is_written(people: People) -> None:
    assert people.address(f"+{NUMBER}") == NUMBER


@pytest.mark.parametrize("chat_id", ["", "Ada", "12", "status@broadcast"])
def test_what_is_no_chat_is_refused(people: People, chat_id: str) -> None:
    with pytest.raises(SendRefused, match="not a WhatsApp chat"):
        people.address(chat_id)


def test_somebody_without_an_id_is_nobody(people: People) -> None:
    with pytest.raises(ValueError, match="without an id"):
        people.chat_of(("", "two words", "\ud800"))


def test_only_who_was_let_in_is_on_disk_and_for_its_owner_alone(
    people: People, tmp_path: Path
) -> None:
    file = tmp_path / "people.json"
    people.chat_of((OTHER, "999@lid"))
    people.save()
    assert not file.exists()
    admit_person(people, NUMBER, LID)
    people.save()
    assert LID in file.read_text()
    assert OTHER not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_nothing_new_is_not_written_again(people: People, tmp_path: Path) -> None:
    admit_person(people, NUMBER, LID)
    people.save()
    (tmp_path / "people.json").unlink()
    admit_person(people, NUMBER, LID)
    people.save()
    assert not (tmp_path / "people.json").exists()


def test_a_disk_that_refuses_is_tried_again(people: People, tmp_path: Path) -> None:
    admit_person(people, LID)
    (tmp_path / temporary_name("people.json")).mkdir()
    with pytest.raises(StorageError):
        people.save()
    (tmp_path / temporary_name("people.json")).rmdir()
    people.save()
    assert People(tmp_path).chat_of((NUMBER, LID)) == LID


@pytest.mark.parametrize("content", ["{", '{"people": [{"chats": 7}]}', "\ufffd"])
def test_a_damaged_file_is_put_aside_and_never_overwritten(tmp_path: Path, content: str) -> None:
    for name in ("people.damaged", "people.damaged1"):
        (tmp_path / "people.json").write_text(content)
        assert People(tmp_path).chat_of((NUMBER,)) == NUMBER
        assert (tmp_path / name).read_text() == content


def test_however_many_strangers_write_those_let_in_stay_known(people: People) -> None:
    admit_person(people, LID)
    people.chat_of((NUMBER, LID))
    for number in range(6_000):
        people.chat_of((f"49155500{number:05}",))
    assert people.chat_of((NUMBER,)) == LID


_IDS = st.sampled_from([NUMBER, OTHER, LID, "999@lid", USER])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.lists(_IDS, min_size=1, max_size=2), st.booleans()), max_size=12))
def test_whatever_is_met_a_chat_leads_back_to_the_person(
    meetings: list[tuple[list[str], bool]],
) -> None:
    with scratch() as folder:
        people = People(folder)
        for ids, let_in in meetings:
            chat_id = people.chat_of(ids)
            assert people.sender(Person(tuple(ids))).id == people.chat_of(ids)
            assert people.address(chat_id)
            if let_in:
                people.mark_admitted(chat_id)
                people.save()
                assert [People(folder).chat_of((id,)) for id in ids] == [chat_id] * len(ids)
