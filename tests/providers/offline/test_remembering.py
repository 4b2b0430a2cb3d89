"""What the person says to keep is in memory/MEMORY.md afterwards, once, under a fitting heading."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.messages import ToolCall
from tests.providers.offline.bench import Bench


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ("my favourite colour is blue, remember that", "User's favourite colour is blue"),
        ("remember that I park on level 3", "The user parks on level 3"),
        ("please don't forget: the door code is 4711", "The door code is 4711"),
        ("note for the future: I prefer window seats", "The user prefers window seats"),
        ("I'm allergic to nuts, keep that in mind", "The user is allergic to nuts"),
        ("Could you remember that my aunt's name is Zoe?", "User's aunt's name is Zoe"),
        ("Hey nanobot, please bear in mind that I teach yoga.", "The user teaches yoga"),
        ("For future reference, my shoe size is 42", "User's shoe size is 42"),
        ("Just so you know, I hate mushrooms", "The user hates mushrooms"),
        ("save this to memory: the gate code is 99", "The gate code is 99"),
        ("My locker is number 12, please remember it.", "User's locker is number 12"),
        ("don't forget that Tuesday is bin day", "Tuesday is bin day"),
        ("my sister's name is Ana", "User's sister's name is Ana"),
        ("I live in Porto", "The user lives in Porto"),
        ("I have three kids", "The user has three kids"),
        ("I don't eat pork", "The user doesn't eat pork"),
        ("I was born in 1990", "The user was born in 1990"),
        ("I love my bike and play chess", "The user loves their bike and plays chess"),
        ("call me Sam", "The user wants to be called Sam"),
        ("I'm Ana", "User's name is Ana"),
        ("I'm German", "The user is German"),
        ("I always take my coffee black", "The user always takes their coffee black"),
        ("Keep in mind: no meetings before ten", "No meetings before ten"),
        ("remember: first aid is in room 4", "First aid is in room 4"),
        ("please store that my blood type is O", "User's blood type is O"),
        ("记住我喜欢绿茶", "用户喜欢绿茶"),
        ("请记住，我的生日是5月3日", "用户的生日是5月3日"),
        ("别忘了我对花生过敏", "用户对花生过敏"),
        ("我最喜欢的电影是《英雄》，别忘了", "用户最喜欢的电影是《英雄》"),
        ("帮我记住明天要交房租", "明天要交房租"),
        ("我住在上海", "用户住在上海"),
        ("我妹妹叫小红", "用户妹妹叫小红"),
        ("请帮我记住一件事：钥匙在花盆下面", "钥匙在花盆下面"),
    ],
)
async def test_a_fact_is_stored_in_the_third_person(bench: Bench, said: str, stored: str) -> None:
    await bench.say(said)
    assert bench.facts == [stored]
    assert [name for name, _ in bench.calls] == ["read_file", "edit_file"]


@pytest.mark.parametrize(
    ("said", "heading", "placeholder"),
    [
        ("I work at a bakery", "User Information", "(who this is)"),
        ("remember that I like jazz", "Preferences", "(what they are fond of)"),
        ("remember the project deadline is 3 May", "Project Context", "(what goes on)"),
        ("remember that the key is under the mat", "Important Notes", "(anything else)"),
        ("记住我喜欢爵士乐", "Preferences", "(what they are fond of)"),
    ],
)
async def test_the_fact_takes_the_place_of_its_sections_placeholder(
    bench: Bench, said: str, heading: str, placeholder: str
) -> None:
    before = bench.memory
    await bench.say(said)
    assert f"## {heading}\n\n- {bench.facts[0]}\n\n" in bench.memory
    assert placeholder not in bench.memory
    untouched = [line for line in before.splitlines() if line and line != placeholder]
    assert [line for line in bench.memory.splitlines() if line in untouched] == untouched


async def test_several_sentences_are_several_facts_in_one_edit(bench: Bench) -> None:
    await bench.say("My dog is called Rex. I work at a bakery. I love jazz.")
    assert bench.facts == [
        "User's dog is called Rex",
        "The user works at a bakery",
        "The user loves jazz",
    ]
    assert [name for name, _ in bench.calls] == ["read_file", "edit_file"]


async def test_joined_statements_are_separate_facts(bench: Bench) -> None:
    await bench.say("My name is Ana and I live in Porto")
    assert bench.facts == ["User's name is Ana", "The user lives in Porto"]


async def test_a_list_after_a_wish_to_remember_is_kept_whole(bench: Bench) -> None:
    await bench.say("Remember these:\n- my locker number is 12\n- the gate code is 99")
    assert set(bench.facts) == {"User's locker number is 12", "The gate code is 99"}


async def test_remember_that_points_at_the_message_before(bench: Bench) -> None:
    await bench.say("The parcel station is behind the church")
    assert bench.facts == []
    await bench.say("Remember that.")
    assert bench.facts == ["The parcel station is behind the church"]


async def test_remember_that_with_nothing_said_asks_what(bench: Bench) -> None:
    assert "What should I remember" in await bench.say("Please remember this.")
    assert bench.calls == []


@pytest.mark.parametrize(
    ("first", "then", "stored"),
    [
        (
            "my favourite colour is blue",
            "my favourite colour is green",
            "User's favourite colour is green",
        ),
        (
            "my favourite colour is blue",
            "Actually, my favorite colour is now red",
            "User's favorite colour is red",
        ),
        ("I live in Porto", "I live in Braga now", "The user lives in Braga"),
        ("I live in Porto", "I moved to Braga", "The user moved to Braga"),
        ("I park on level 3", "I park on level 5", "The user parks on level 5"),
        ("I'm 34 years old", "I am 35", "The user is 35"),
        ("我住在上海", "我搬到北京了", "用户搬到北京了"),
        ("我最喜欢的颜色是蓝色", "我最喜欢的颜色是绿色", "用户最喜欢的颜色是绿色"),
    ],
)
async def test_a_newer_fact_of_the_same_subject_replaces_the_older(
    bench: Bench, first: str, then: str, stored: str
) -> None:
    await bench.say(f"remember that {first}" if first.isascii() else f"记住{first}")
    reply = await bench.say(f"remember that {then}" if then.isascii() else f"记住{then}")
    assert bench.facts == [stored]
    assert "Updated" in reply or "已更新" in reply


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("I like tea", "I like jazz"),
        ("my dog is called Rex", "my dog is 5 years old"),
        ("my sister's name is Ana", "my brother's name is Ivo"),
        ("I'm allergic to nuts", "I'm allergic to cats"),
        ("我喜欢茶", "我喜欢爵士乐"),
    ],
)
async def test_facts_that_can_both_be_true_stay(bench: Bench, first: str, second: str) -> None:
    await bench.say(first)
    await bench.say(second)
    assert len(bench.facts) == 2


async def test_a_known_fact_changes_nothing_and_is_said_to_be_known(bench: Bench) -> None:
    await bench.say("I live in Porto")
    before = bench.memory
    reply = await bench.say("remember that I live in Porto")
    assert "already" in reply
    assert bench.memory == before


async def test_hand_written_lines_survive(tmp_path: Path) -> None:
    memory = "# Mine\n\n## User Information\n\n* Tall\nsome prose\n\n## Preferences\n\n- quiet\n"
    bench = Bench(tmp_path, memory=memory)
    await bench.say("I live in Porto")
    assert bench.memory == memory.replace("some prose\n", "some prose\n- The user lives in Porto\n")


@pytest.mark.parametrize("memory", [None, "", "just some words\n", "# Title only\n"])
async def test_without_a_section_to_edit_the_file_is_written(
    tmp_path: Path, memory: str | None
) -> None:
    bench = Bench(tmp_path, memory=memory)
    await bench.say("I live in Porto")
    assert [name for name, _ in bench.calls] == ["read_file", "write_file"]
    assert bench.memory.startswith((memory or "").strip())
    assert "## User Information\n\n- The user lives in Porto\n" in bench.memory


async def test_a_memory_of_many_pages_is_read_to_its_end(tmp_path: Path) -> None:
    lines = "\n".join(f"- fact number {n} holds" for n in range(90))
    bench = Bench(tmp_path, memory=f"## User Information\n\n{lines}\n", page=25)
    await bench.say("I live in Porto")
    assert [name for name, _ in bench.calls] == ["read_file"] * 4 + ["edit_file"]
    assert bench.facts[0] == "fact number 0 holds"
    assert bench.facts[-1] == "The user lives in Porto"
    assert len(bench.facts) == 91


@pytest.mark.parametrize("tools", [(), ("list_dir", "grep"), ("read_file",), ("write_file",)])
async def test_without_file_tools_it_says_that_it_cannot_store(
    tmp_path: Path, tools: tuple[str, ...]
) -> None:
    bench = Bench(tmp_path, tools=tools)
    assert "cannot store" in await bench.say("remember that I park on level 3")
    assert bench.facts == []


@pytest.mark.parametrize("tools", [("read_file", "edit_file"), ("read_file", "write_file")])
async def test_one_tool_that_changes_files_is_enough(
    tmp_path: Path, tools: tuple[str, ...]
) -> None:
    bench = Bench(tmp_path, tools=tools)
    await bench.say("remember that I park on level 3")
    assert bench.facts == ["The user parks on level 3"]


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        ("edit_file", "memory/MEMORY.md was not written: the disk is full"),
        ("edit_file", "Error: permission denied"),
        ("read_file", "Error: memory/MEMORY.md cannot be read"),
        ("edit_file", "interrupted: this call had started when nanobot was stopped"),
    ],
)
async def test_a_tools_error_is_told_and_nothing_is_claimed(
    bench: Bench, tool: str, problem: str
) -> None:
    bench.broken[tool] = problem
    reply = await bench.say("remember that I park on level 3")
    assert "could not store" in reply
    assert problem[:30] in reply
    assert "I'll remember" not in reply


async def test_a_file_that_changed_meanwhile_is_read_again(bench: Bench) -> None:
    run = bench.run
    hits: list[ToolCall] = []

    def change_first(call: ToolCall) -> str:
        if call.name == "edit_file" and not hits:
            hits.append(call)
            bench.memory_file.write_text(bench.memory.replace("(who this is)", "- by hand"))
        return run(call)

    bench.run = change_first  # type: ignore[method-assign]
    await bench.say("I live in Porto")
    assert bench.facts == ["by hand", "The user lives in Porto"]


@pytest.mark.parametrize(
    "said",
    [
        "I'm tired",
        "I have a question",
        "My question is about trains",
        "I'm going out now",
        "I like that",
        "the weather is nice",
        "我有个问题",
        "what is my name?",
        "Do you remember that I like tea?",
    ],
)
async def test_passing_remarks_and_questions_are_not_stored(bench: Bench, said: str) -> None:
    await bench.say(said)
    assert bench.facts == []


async def test_a_fact_can_be_forgotten(bench: Bench) -> None:
    await bench.say("My dog is called Rex. I live in Porto.")
    reply = await bench.say("forget my dog's name")
    assert "Rex" in reply
    assert bench.facts == ["The user lives in Porto"]
    assert "don't know" in await bench.say("what is my dog's name?")


async def test_facts_that_arrive_while_it_works_are_stored_too(bench: Bench) -> None:
    reply = await bench.say("I live in Porto", while_working="My cat is called Tom")
    assert bench.facts == ["The user lives in Porto", "User's cat is called Tom"]
    assert "Porto" in reply
    assert "Tom" in reply
