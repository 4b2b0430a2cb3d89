"""Codes, numbers and names are found in other spellings, and words with a typing error."""

from __future__ import annotations

import pytest

from nanobot.memory.search import Query
from nanobot.memory.search.index import MemoryIndex
from tests.memory.search.talk import Home, everything, message

SAID = (
    "We take flight LH 1829 to Porto in spring",
    "The return is XQ204, a small plane",
    "The boiler needs filter HX-77B every year",
    "My booking code for the ferry is R7K-9QP",
    "The plumber answers under 0170 123 45 67",
    "Grandma's new number: +43 1 5128833",
    "The rent went up to 12,400 a year",
    "The account is DE89 3704 0044 0532 0130 00",
    "In the code getUserName returns nothing at all",
    "I gave my old iPhone15 to the neighbour",
    "The accommodation near the lake was lovely",
    "We had dinner in the restaurant below the castle",
    "The passport is in the second drawer",
    "They will definitely sell the boat",
    "Tomorrow's lasagne is in the freezer",
    "The physiotherapist moved to another street",
    "Cheesecake is what she bakes for birthdays",
    "The water heater makes a strange noise",
    "Der Zahnarzttermin ist am Montag um neun",
    "Mon anniversaire tombe un dimanche",
    "Я купил велосипед на рынке",
    "El zapatero arregló mis botas",
)

CODES = {
    "LH1829": 0,
    "XQ 204": 1,
    "HX77B": 2,
    "R7K9QP": 3,
    "01701234567": 4,
    "+49 170 1234567": 4,
    "0043/15128833": 5,
    "12400": 6,
    "DE89370400440532013000": 7,
    "user name": 8,
    "iphone 15": 9,
}

MISTYPED = {
    "acomodation": 10,
    "restaraunt": 11,
    "pasport": 12,
    "definately": 13,
    "lasange": 14,
    "phisiotherapist": 15,
    "cheese cake": 16,
    "waterheater": 17,
    "Zahnartztermin": 18,
    "aniversaire": 19,
    "велосепед": 20,
    "sapatero": 21,
}


@pytest.fixture
def talk(home: Home) -> Home:
    for at, text in enumerate(SAID):
        home.say(f"cli:{at}", message(1, "Good morning"), message(2, text))
    return home


@pytest.mark.parametrize(("asked", "at"), [*CODES.items(), *MISTYPED.items()])
async def test_another_spelling_is_found_first(
    talk: Home, index: MemoryIndex, asked: str, at: int
) -> None:
    found = await index.search(Query(asked, ("owner",)))
    assert [hit.passage.text for hit in found.hits[:1]] == [SAID[at]]


@pytest.mark.parametrize("asked", ["01701234567", "R7K9QP", "XQ204", "DE89370400440532013000"])
async def test_the_search_for_messages_finds_other_spellings_of_codes(
    talk: Home, index: MemoryIndex, asked: str
) -> None:
    (found,) = await index.find_messages(asked, "", 5)
    assert found.seq == 2


async def test_a_word_that_is_known_is_not_respelled(home: Home, index: MemoryIndex) -> None:
    home.say("cli:direct", message(1, "The house is sold"), message(2, "The horse is sold", day=2))
    found = await index.search(Query("horse", ("owner",)))
    assert found.hits[0].passage.seq == 2
    assert len(found.hits) == 1


async def test_the_terms_that_were_looked_up_are_words_that_the_person_wrote(
    talk: Home, index: MemoryIndex
) -> None:
    found = await index.search(Query("call 0170 123 45 67", ("owner",)))
    assert set(found.terms) <= {"call", "0170", "123", "45", "67", "call0170"}


async def test_other_spellings_leave_the_index_with_their_message(home: Home) -> None:
    key = "cli:direct"
    home.say(key, message(1, "the number is 0170 123 45 67", turn="t1"), message(2, "R7K-9QP"))
    index, folder = home.index(), home.database.parent
    await index.refresh()
    assert all(other in everything(folder) for other in (b"1234567", b"r7k9qp"))
    home.file(key).write_text("")
    await index.refresh()
    await index.close()
    assert not any(other in everything(folder) for other in (b"1234567", b"r7k9qp"))
