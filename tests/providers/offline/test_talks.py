"""Whole talks: what is changed, forgotten or edited by hand counts from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.providers.offline.bench import Bench

TALKS = [
    (("My dog is called Biscuit and he is 7 years old", "My dog is 8 now"), "how old is my dog?",
     "8", "7"),
    (("my sister Mia lives in Oslo", "Mia moved to Paris"), "where does Mia live?", "Paris",
     "Oslo"),
    (("the key is on the desk", "remember that", "the key is in the car"), "where is the key?",
     "car",
     "desk"),
    (("my brother John's birthday is May 4", "my birthday is June 1"), "when is John's birthday?",
     "May 4", "June"),
    (("my brother John's birthday is May 4", "my birthday is June 1"), "when is my birthday?",
     "June 1", "May"),
    (("我妹妹叫小红",), "我妹妹喜欢什么？", "不知道", "小红"),
    (("My car is a Volvo. Actually no, it's a Saab.",), "what is my car?", "Saab", "Volvo"),
    (("my car is a Volvo", "correction: my car is a Fiat"), "what is my car?", "Fiat", "Volvo"),
    (("I have two kids", "I have three kids"), "how many kids do I have?", "three", "two"),
    (("我今年30岁", "我今年31岁了"), "我多大了？", "31", "30"),
    (("I don't like olives", "I like olives now"), "do I like olives?", "like", "don't"),
    (("I live in Rome", "I no longer live in Rome"), "where do I live?", "don't know", "Rome"),
    (("I used to live in Oslo",), "where do I live?", "don't know", "Oslo"),
    (("我住在杭州", "我搬到成都了"), "我现在住在哪儿？", "成都", "杭州"),
    (("remember the deadline of Zephyr is 3 Feb", "The deadline of Zephyr moved to 10 Feb"),
     "when is the Zephyr deadline?", "10 Feb", "3 Feb"),
    (("我住在杭州，在一家书店工作", "我搬到成都了"), "我在哪里工作？", "书店", "杭州"),
    (("我叫李雷，今年30岁，住在北京", "请忘掉我住在北京"), "我叫什么？", "李雷", "北京"),
    (("我叫李雷，今年30岁，住在北京", "请忘掉我住在北京"), "我住在哪里？", "不知道", "北京"),
    (("I like blue cheese",), "what is my favourite colour?", "don't know", "cheese"),
    (("my wife's birthday is May 4",), "what's my wife called?", "don't know", "May"),
    (("John's birthday is May 4, remember that", "remember that Mary's birthday is June 1"),
     "when is John's birthday?", "May 4", "June"),
    (("my email is ana@example.org",), "what is my email address?", "ana@example.org", "know"),
    (("remember that the cat's vet is Dr. Ng",), "who's the vet?", "Ng", "know"),
    (("記住我最喜歡的顏色是藍色",), "我最喜歡的顏色是什麼？", "藍色", "不知道"),
    (("记住WiFi密码是 abc-123", "忘掉WiFi密码"), "WiFi密码是什么？", "不知道", "abc"),
    (("remember that John's birthday is May 4", "forget John's birthday"),
     "when is John's birthday?", "don't know", "May"),
    (("my locker code is 7781!",), "what is my locker code?", "7781!", "know"),
    (("请记住：WiFi密码是 abc-123!",), "WiFi密码是什么？", "abc-123!", "不知道"),
    (("记住WiFi密码是 abc！123",), "WiFi密码是什么？", "abc！123", "不知道"),
    (("My allergies are: penicillin; latex",), "what are my allergies?", "latex", "know"),
    (("My kids: Anna; Ben; Carl",), "who are my kids?", "Carl", "know"),
    (("remember that 🦄",), "what do you know about me?", "🦄", "nothing"),
    (("Remember: a; b; c",), "what do you know about me?", "c", "nothing"),
    (("I like tea", "I like jazz"), "what did I just say?", "I like jazz", "tea"),
    (("I like tea", "I like jazz"), "what was my first message?", "I like tea", "jazz"),
    (("I like tea", "I like jazz"), "what did we talk about?", "I like tea", "know"),
    (("I like tea", "I like jazz"), "summarise our conversation", "I like jazz", "know"),
    (("我喜欢茶", "我喜欢爵士乐"), "我刚才说了什么", "爵士乐", "茶"),
    (("我喜欢茶", "我喜欢爵士乐"), "我的第一句话是什么", "茶", "爵士"),
]  # fmt: skip


@pytest.mark.parametrize(("told", "question", "answer", "not_said"), TALKS)
async def test_the_newest_state_answers(
    bench: Bench, told: tuple[str, ...], question: str, answer: str, not_said: str
) -> None:
    for text in told:
        await bench.say(text)
    reply = await bench.say(question)
    assert answer in reply
    assert not_said not in reply
    if " just " in question or "first" in question or "刚才" in question or "第一" in question:
        return
    if "we" not in question.split() and "our" not in question.split():
        bench.new_conversation()
        reply = await bench.say(question)
        assert answer in reply
        assert not_said not in reply


@pytest.mark.parametrize(("new", "answer"), [("- User's desk is pine\n", "pine"), ("", "know")])
async def test_an_edit_by_hand_counts_for_what_was_said_today(
    bench: Bench, new: str, answer: str
) -> None:
    await bench.say("my desk is oak")
    bench.memory_file.write_text(bench.memory.replace("- User's desk is oak\n", new))
    reply = await bench.say("what is my desk?")
    assert answer in reply
    assert "oak" not in reply


async def test_a_notice_that_was_shortened_is_read_up_in_the_file(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    motto = "x" * 200
    bench.memory_file.write_text(bench.memory.replace("(anything else)", f"- The motto is {motto}"))
    notice = f'[memory changed: added "The motto is {motto[:140]}…"]\n'
    assert motto in await bench.say(f"{notice}what is the motto?")


@pytest.mark.parametrize(
    ("said", "told"),
    [("forget the unicorn", "nothing about"), ("forget everything", "memory/MEMORY.md")],
)
async def test_forgetting_what_is_not_there_or_everything_changes_nothing(
    bench: Bench, said: str, told: str
) -> None:
    await bench.say("I live in Porto")
    before = bench.memory
    assert told in await bench.say(said)
    assert bench.memory == before


async def test_todays_notes_are_part_of_what_is_known(bench: Bench) -> None:
    await bench.say("note: buy milk")
    assert "milk" in await bench.say("what do you know about me?")


async def test_two_notes_in_one_message_are_two_notes(bench: Bench) -> None:
    await bench.say("note: buy milk\nnote: call Bo")
    noted = [arguments["text"] for name, arguments in bench.calls if name == "note"]
    assert noted == ["buy milk", "call Bo"]
