"""Long replies to short questions, found later in other words, without "what did you say"."""

from __future__ import annotations

import pytest

from nanobot.memory.search import Query
from nanobot.memory.search.index import MemoryIndex
from tests.memory.search.talk import Home, find, ids, message

KEY, OWNER = "cli:direct", ("owner",)

# The question, the reply, and the later question.
TALKS = (
    (
        "any idea for the pears?",
        "Poached pears work well. For four people: four firm pears, 500 ml red wine, 120 g sugar,"
        " a cinnamon stick, two cloves and a strip of orange peel. Simmer them for 25 minutes, let"
        " them cool in the syrup, then reduce it by half.",
        "how much sugar goes with the wine and cloves?",
    ),
    (
        "how do I get fitter?",
        "A plan for eight weeks. Monday: intervals, six times 400 metres. Wednesday: an easy run of"
        " forty minutes. Friday: squats, lunges and planks, three sets. Sunday: a long run that"
        " grows by one kilometre a week. Rest on the other days and sleep enough.",
        "which day were the squats and lunges?",
    ),
    (
        "what should I see there?",
        "Three days are enough. First the old harbour and the fish market, then the funicular up to"
        " Fløyen. On the second day take the ferry to Flåm. Keep the Munch rooms of the KODE museum"
        " for rain, and book a table at Lysverket early.",
        "the funicular to the viewpoint, and the museum for a rainy day",
    ),
    (
        "my router is slow, help",
        "Try these in order: restart it, move it away from the microwave, set the channel to 11,"
        " switch the band to 5 GHz for the laptop, and update the firmware to 3.0.4.386. If it is"
        " still slow, measure with a cable to rule out the provider.",
        "which firmware and channel for the wifi?",
    ),
    (
        "Was koche ich heute?",
        "Wie wäre es mit Linsensuppe: 250 g rote Linsen, eine Zwiebel, zwei Möhren, ein Liter"
        " Gemüsebrühe, ein Teelöffel Kreuzkümmel. Zwanzig Minuten köcheln, mit Zitronensaft"
        " abschmecken und mit Joghurt servieren.",
        "Wie viel Kreuzkümmel kam zu den roten Linsen?",
    ),
    (
        "Welche Heizung passt zu uns?",
        "Für euer Haus spricht viel für eine Luftwärmepumpe mit 8 kW. Die Förderung deckt 35 bis"
        " 55 Prozent, der Hydraulikabgleich ist Pflicht, und ein Pufferspeicher mit 300 Litern"
        " reicht. Rechnet mit etwa 28.000 Euro vor Abzug der Förderung.",
        "Wie groß soll der Pufferspeicher der Wärmepumpe sein?",
    ),
    (
        "un vin pour ce soir ?",
        "Avec le magret, prenez un Madiran de 2018, carafé une heure avant, servi à 17 degrés. Si"
        " vous préférez plus léger, un Saumur-Champigny va très bien. Évitez un blanc trop boisé,"
        " et gardez le Sauternes pour le dessert.",
        "à quelle température servir le Madiran avec le canard ?",
    ),
    (
        "¿qué le regalo a mi madre?",
        "Por lo que cuentas, tres ideas: un taller de cerámica en Lavapiés, unos 45 euros; una"
        " suscripción a una revista de jardinería; o entradas para la zarzuela del 12 de junio."
        " Yo elegiría el taller, porque pueden ir juntas.",
        "cuánto costaba el taller de cerámica",
    ),
    (
        "что почитать?",
        "Вот список на лето: «Пикник на обочине» Стругацких, «Зулейха открывает глаза» Яхиной,"
        " «Лавр» Водолазкина. Начните с «Лавра»: он короче, чем кажется, и лучше всего подходит"
        " для долгой дороги.",
        "какую книгу Водолазкина взять в дорогу",
    ),
    (
        "周末去哪里?",
        "可以去莫干山住两天。第一天走竹林步道,晚上泡温泉;第二天早起看日出,然后去庾村的老茶馆。"
        "高铁到德清,再坐旅游专线,大约四十分钟。民宿建议提前一周订。",
        "竹林步道和温泉是在哪座山?",
    ),
    (
        "夕飯どうしよう?",
        "鶏肉と大根の煮物はどうですか。鶏もも肉300グラム、大根半分、しょうが一片、醤油大さじ3、"
        "みりん大さじ2。弱火で30分煮て、最後に柚子の皮をのせます。",
        "大根と鶏肉に醤油は大さじいくつ?",
    ),
    (
        "o que faço com a planta?",
        "A sua jiboia precisa de luz indireta e de rega a cada dez dias. Corte as folhas amarelas,"
        " troque o vaso por um de 20 cm com furos, misture perlita à terra e adube com NPK 10-10-10"
        " na primavera.",
        "de quantos centímetros era o vaso com perlita?",
    ),
)  # fmt: skip

OTHERS = (
    "I bought sugar and wine for the party", "the museum was closed again",
    "we run along the river on Sunday", "die Linsen waren aus", "das Haus ist kalt",
    "le vin était trop cher", "mi madre llega el martes", "книгу оставил дома", "周末下雨了",
    "大根を買った", "a planta cresceu", "the laptop needs an update",
)  # fmt: skip


@pytest.fixture
async def talked(home: Home, index: MemoryIndex) -> MemoryIndex:
    """An index of a chat with all talks, between messages with some of their words."""
    said, day = list[tuple[str, str]](), 0
    for (asked, reply, _), other in zip(TALKS, OTHERS, strict=True):
        said += [("user", asked), ("assistant", reply)]
        for text in ("thanks!", other, "see you"):
            said += [("user", text), ("assistant", "Good to know.")]
    for seq, (role, text) in enumerate(said, 1):
        day += role == "user" and any(text == asked for asked, _, _ in TALKS)
        home.say(KEY, message(seq, text, "user" if role == "user" else "assistant", day=day))
    return index


@pytest.mark.parametrize(("at", "talk"), [*enumerate(TALKS)], ids=[talk[2] for talk in TALKS])
async def test_a_long_reply_is_found_by_its_own_words(
    talked: MemoryIndex, at: int, talk: tuple[str, str, str]
) -> None:
    seq = 2 + at * 8
    found = ids(await talked.search(Query(talk[2], OWNER, limit=3)))
    assert f"m:{KEY}:{seq}" in found


async def test_a_short_reply_or_one_that_repeats_its_message_displaces_no_other(
    home: Home, index: MemoryIndex
) -> None:
    home.say(
        KEY,
        message(1, "Oscar the elephant moved to the zoo in Leipzig"),
        message(2, "So Oscar the elephant moved to the zoo in Leipzig. Noted!", "assistant"),
        message(3, "and an elephant eats hay"),
        message(4, "Hay for the elephant, okay.", "assistant"),
    )
    found = ids(await index.search(Query("elephant", OWNER)))
    assert set(found[:2]) == {f"m:{KEY}:1", f"m:{KEY}:3"}


async def test_a_reply_that_comes_after_its_message_was_indexed_is_compared_with_it(
    home: Home, index: MemoryIndex
) -> None:
    home.say(KEY, message(1, "an elephant called Oscar lives in the zoo of Leipzig"))
    await index.refresh()
    home.say(KEY, message(2, "An elephant called Oscar lives in the zoo of Leipzig.", "assistant"))
    home.say(KEY, message(3, "the elephant house is new"))
    assert (await find(index, "elephant zoo"))[-1] == f"m:{KEY}:2"


async def test_one_line_of_a_long_reply_is_found_among_short_messages_with_a_word_of_it(
    home: Home, index: MemoryIndex
) -> None:
    lines = [f"- plant number {number} grows slowly in dark soil" for number in range(40)]
    lines[7:7] = ["- saffron goes into the pears, at the end"]
    home.say(KEY, message(1, "Give me ideas for the weekend."))
    home.say(KEY, message(2, "\n".join(lines), "assistant"))
    others = {6: "saffron bread", 9: "ripe pears", 12: "saffron bread", 15: "ripe pears"}
    for seq in range(3, 20):
        home.say(KEY, message(seq, others.get(seq, "good tea")))
    found = ids(await index.search(Query("saffron pears", OWNER)))
    assert found[0] == f"m:{KEY}:2"
