"""A person's line ends a known fact only if that is sure without a model."""

from __future__ import annotations

from datetime import date

import pytest

from nanobot.memory.evidence import find_contradicted

DAY = date(2026, 11, 20)

SURE = [
    ("Lives in Berlin", "I live in Paris now"),
    ("Lives in Berlin", "I moved to Paris. I no longer live in Berlin."),
    ("Lives in Berlin", "I don't live in Berlin any more"),
    ("“I live in Berlin” (2026-11-01)", "I live in Paris now"),
    ("Allergic to penicillin", "I am not allergic to penicillin"),
    ("User is allergic to nuts", "I'm not allergic to nuts any more"),
    ("My shoe size is 42", "My shoe size is 43 now"),
    ("User's favourite colour is blue", "my favourite colour is green"),
    ("Has a boat", "I sold the boat"),
    ("Plays the violin", "I no longer play the violin"),
    ("Sister Ann lives in Oslo", "My sister Ann lives in Rome now"),
    ("Wohnt in Berlin", "Ich wohne jetzt in München"),
    ("Der Nutzer wohnt in Berlin", "Ich wohne nicht mehr in Berlin"),
    ("Hat ein Boot", "Ich habe das Boot verkauft"),
    ("用户住在上海", "我现在住在北京"),
    ("住在上海", "我不住在上海了"),
    ("最喜欢的颜色是蓝色", "我最喜欢的颜色是绿色"),
    ("对花生过敏", "我对花生不过敏"),
    ("鞋码是42", "我的鞋码是43"),
    ("Habite à Lyon", "J'habite maintenant à Paris"),
    ("Живёт в Москве", "Я теперь живу в Казани"),
]
DOUBTFUL = [
    ("Likes green tea", "I like green apples"),
    ("Speaks fluent German", "I speak fluent Polish"),
    ("Plays the violin", "I now play the piano"),
    ("Has a dog", "I now have a cat"),
    ("Drinks tea", "I now drink green tea"),
    ("Flies to Rome", "I fly to Rome on 5 May"),
    ("Has two cats", "I have two cats and 3 dogs"),
    ("Allergic to nuts", "I am allergic to nuts and milk"),
    ("Allergic to penicillin", "I am not allergic to nuts"),
    ("Lives in Berlin", "I live in Berlin now with Tom"),
    ("Lives in Berlin", "I used to live in Paris"),
    ("Lives in Berlin", "I might not live in Berlin"),
    ("Lives in Berlin", "Do I no longer live in Berlin?"),
    ("Lives in Berlin", "My sister lives in Paris now"),
    ("Sister lives in Oslo", "I don't live in Oslo any more"),
    ("Sister Ann lives in Oslo", "My sister Eve lives in Rome now"),
    ("Favourite colour is blue", "My favourite food is pizza"),
    ("Favourite colour is blue", "Tom's favourite colour is green"),
    ("Wohnt in Berlin", "Tom sagt, ich wohne nicht mehr in Berlin"),
    ("Mag grünen Tee", "Ich mag grüne Äpfel"),
    ("喜欢喝茶", "我喜欢喝咖啡"),
    ("有一只狗", "我现在有一只猫"),
    ("住在上海", "我妹妹现在住在北京"),
]


@pytest.mark.parametrize(("fact", "said"), SURE)
def test_a_line_that_surely_ends_a_fact_is_found(fact: str, said: str) -> None:
    for line in (f"- “{said}” ({DAY})", said):
        assert find_contradicted(line, {f"- {fact}": DAY, "- Likes old maps": DAY}, DAY) == [
            f"- {fact}"
        ]


@pytest.mark.parametrize(("fact", "said"), DOUBTFUL)
def test_what_may_be_true_with_the_fact_ends_nothing(fact: str, said: str) -> None:
    assert find_contradicted(f"“{said}” ({DAY})", {f"- {fact}": DAY}, DAY) == []


def test_a_fact_of_a_later_day_stands() -> None:
    later = {"- Lives in Berlin": date(2026, 11, 21)}
    assert find_contradicted("“I live in Paris now” (2026-11-20)", later, DAY) == []
    assert find_contradicted("“I live in Paris now” (2026-99-99)", later, date(2026, 12, 1))


@pytest.mark.parametrize(
    "line",
    [
        "Ich wohne in Graz, nicht in Wien",
        "I live in Paris, not in Berlin any more",
        "I don't play the violin, I play the piano",
        "我住在北京,不住在上海",
    ],
)
def test_a_line_does_not_contradict_itself(line: str) -> None:
    facts = {f"- “{line}” ({DAY})": DAY, f"- {line}": DAY}
    assert find_contradicted(line, facts, DAY) == []
    assert find_contradicted(f"- “{line}” ({DAY})", facts, DAY) == []
