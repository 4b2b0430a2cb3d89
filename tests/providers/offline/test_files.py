"""Requests about files and notes become the right tool calls, and their outcome is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.providers.offline.bench import Bench


@pytest.mark.parametrize(
    ("said", "path", "content"),
    [
        ("write hello to a.txt", "a.txt", "hello"),
        ('Please write "hello world" into docs/b.txt.', "docs/b.txt", "hello world"),
        ("save eggs and milk in shopping.md", "shopping.md", "eggs and milk"),
        (
            "create a file c.txt with some text. Two sentences!",
            "c.txt",
            "some text. Two sentences!",
        ),
        ("create a file called d.md containing:\n# One\n\n- two", "d.md", "# One\n\n- two"),
        ("make a new file e.txt that says good morning", "e.txt", "good morning"),
        ("write to f.txt: line one\nline two", "f.txt", "line one\nline two"),
        ("create g.txt", "g.txt", ""),
        ("把你好写入 h.txt", "h.txt", "你好"),
        ("把 hello world 保存到docs/i.txt", "docs/i.txt", "hello world"),
        ("创建文件 j.txt，内容是你好，世界", "j.txt", "你好，世界"),
        ("在 k.txt 里写：早上好", "k.txt", "早上好"),
    ],
)
async def test_a_file_is_written(bench: Bench, said: str, path: str, content: str) -> None:
    reply = await bench.say(said)
    assert (bench.folder / path).read_text() == content
    assert path in reply
    assert len(bench.calls) == 1


@pytest.mark.parametrize(
    "said",
    ["read notes.txt", "show me notes.txt", "what's in notes.txt?", "what does notes.txt say?",
     "can you open the file notes.txt", "cat notes.txt", "读一下 notes.txt", "读一下notes.txt",
     "看看 notes.txt 的内容", "notes.txt 里写了什么？"],
)  # fmt: skip
async def test_a_file_is_read(bench: Bench, said: str) -> None:
    (bench.folder / "notes.txt").write_text("the rain in Spain\n")
    assert "the rain in Spain" in await bench.say(said)
    assert bench.calls == [("read_file", {"path": "notes.txt"})]


@pytest.mark.parametrize(
    ("said", "reply"),
    [
        ("send me notes.txt", "Here is notes.txt."),
        ("Can you send me the file notes.txt, please?", "Here is notes.txt."),
        ("give me notes.txt as a file", "Here is notes.txt."),
        ("share notes.txt with me!", "Here is notes.txt."),
        ("把 notes.txt 发给我", "notes.txt 发给你了。"),
        ("请把文件notes.txt发给我吧", "notes.txt 发给你了。"),
        ("发一下 notes.txt", "notes.txt 发给你了。"),
        ("请发给我 notes.txt", "notes.txt 发给你了。"),
    ],
)
async def test_a_file_is_sent(bench: Bench, said: str, reply: str) -> None:
    (bench.folder / "notes.txt").write_text("rain")
    assert await bench.say(said) == reply
    assert bench.calls == [("message", {"media": ["notes.txt"]})]


@pytest.mark.parametrize(
    "said", ["send notes.txt to Ana", "send me a joke", "give me some advice", "发个红包"]
)
async def test_what_is_no_file_for_me_is_not_sent(bench: Bench, said: str) -> None:
    await bench.say(said)
    assert bench.calls == []


async def test_a_file_is_written_and_then_sent(bench: Bench) -> None:
    reply = await bench.say("write hello to a.txt, then send it to me")
    assert [name for name, _ in bench.calls] == ["write_file", "message"]
    assert reply.endswith("Here is a.txt.")


async def test_a_file_that_was_not_sent_is_never_called_sent(bench: Bench) -> None:
    assert "did not work (message nowhere.txt)" in await bench.say("send me nowhere.txt")
    bench.broken["message"] = "interrupted: this call had started; the outcome is unknown"
    (bench.folder / "a.txt").write_text("x")
    assert "did not work" in await bench.say("send me a.txt")


async def test_a_voice_message_in_a_group_is_heard_like_a_text(bench: Bench) -> None:
    said = "[from Ana]\nwrite hello to a.txt\n[voice, kept as media/ab.ogg; transcribed above]"
    await bench.say(said)
    assert (bench.folder / "a.txt").read_text() == "hello"


async def test_several_files_are_read_in_one_turn(bench: Bench) -> None:
    (bench.folder / "a.txt").write_text("first")
    (bench.folder / "b.txt").write_text("second")
    reply = await bench.say("read a.txt and b.txt")
    assert reply.index("first") < reply.index("second")


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("list files", "."),
        ("What files do I have?", "."),
        ("show me all files in the workspace", "."),
        ("what files are there in docs?", "docs"),
        ("list the files in the docs folder", "docs"),
        ("ls docs", "docs"),
        ("列出文件", "."),
        ("有哪些文件？", "."),
        ("列出 docs 里的文件", "docs"),
        ("docs 目录下有什么文件", "docs"),
    ],
)
async def test_a_folder_is_listed(bench: Bench, said: str, path: str) -> None:
    (bench.folder / "docs").mkdir()
    (bench.folder / "docs" / "inner.md").write_text("x")
    reply = await bench.say(said)
    assert bench.calls == [("list_dir", {"path": path})]
    assert ("inner.md" if path == "docs" else "memory") in reply


@pytest.mark.parametrize(
    ("said", "after"),
    [
        ("replace red with blue in a.txt", "blue rose\n"),
        ("change red to dark green in a.txt", "dark green rose\n"),
        ("in a.txt replace rose with tulip", "red tulip\n"),
        ("把 a.txt 里的 red 替换成 blue", "blue rose\n"),
        ("append a vase to a.txt", "red rose\na vase\n"),
        ("add a vase to the end of a.txt", "red rose\na vase\n"),
        ("把花瓶追加到 a.txt", "red rose\n花瓶\n"),
    ],
)
async def test_a_file_is_changed(bench: Bench, said: str, after: str) -> None:
    (bench.folder / "a.txt").write_text("red rose\n")
    await bench.say(said)
    assert (bench.folder / "a.txt").read_text() == after


@pytest.mark.parametrize(
    ("said", "tool", "pattern"),
    [
        ("find files named *.md", "find_files", "*.md"),
        ("find all *.md files", "find_files", "*.md"),
        ("list all .md files", "find_files", "*.md"),
        ("查找文件 *.md", "find_files", "*.md"),
        ("search for a+b (c) in files", "grep", r"a\+b \(c\)"),
        ("which files contain hello?", "grep", "hello"),
        ("grep hello", "grep", "hello"),
        ("在文件中搜索 hello", "grep", "hello"),
    ],
)
async def test_files_are_searched(bench: Bench, said: str, tool: str, pattern: str) -> None:
    (bench.folder / "x.md").write_text("hello a+b (c)\n")
    reply = await bench.say(said)
    assert bench.calls == [(tool, {"pattern": pattern, "path": "."})]
    assert "x.md" in reply


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("note: buy milk", "buy milk"),
        ("take a note that the plumber comes at 3", "the plumber comes at 3"),
        ("Please make a note: call the bank", "call the bank"),
        ("jot down eggs. And ham.", "eggs. And ham."),
        ("记一下明天开会", "明天开会"),
        ("帮我记一下：买牛奶", "买牛奶"),
        ("remind me to call mum", "call mum"),
    ],
)
async def test_a_note_is_taken(bench: Bench, said: str, text: str) -> None:
    assert text in await bench.say(said)
    assert bench.calls == [("note", {"text": text})]


async def test_commands_in_one_sentence_are_done_in_order(bench: Bench) -> None:
    reply = await bench.say("write hello to a.txt, then read it")
    assert [name for name, _ in bench.calls] == ["write_file", "read_file"]
    assert "hello" in reply


async def test_a_missing_file_is_reported_as_missing(bench: Bench) -> None:
    assert "there is no nowhere.txt" in await bench.say("read nowhere.txt")
    assert "没有成功" in await bench.say("读一下 nowhere.txt")


async def test_a_file_that_talks_of_errors_is_shown(bench: Bench) -> None:
    (bench.folder / "app.log").write_text("start\n" * 5 + "Error: there is no disk\n")
    reply = await bench.say("read app.log")
    assert reply.startswith("app.log:")


@pytest.mark.parametrize("tool", ["write_file", "edit_file", "note"])
async def test_a_failed_change_is_never_called_done(bench: Bench, tool: str) -> None:
    bench.broken[tool] = "not allowed: changes are off"
    said = {
        "write_file": "write x to a.txt",
        "edit_file": "replace x with y in a.txt",
        "note": "note: x",
    }
    reply = await bench.say(said[tool])
    assert "did not work" in reply
    assert "changes are off" in reply


@pytest.mark.parametrize("said", ["list files", "write x to a.txt", "note: x", "读一下 a.txt"])
async def test_a_tool_that_is_not_offered_is_not_called(tmp_path: Path, said: str) -> None:
    bench = Bench(tmp_path, tools=())
    reply = await bench.say(said)
    assert bench.calls == []
    assert "not available" in reply or "没有" in reply


async def test_a_long_file_is_shown_in_part_and_that_is_said(bench: Bench) -> None:
    (bench.folder / "long.txt").write_text("word " * 5_000)
    reply = await bench.say("read long.txt")
    assert len(reply) < 7_000
    assert "more characters" in reply


@pytest.mark.parametrize(
    "problem",
    [
        "../x.txt leads out of the workspace",
        ".git/config: nothing inside .git is read or written",
        "the path is too long",
        "x.txt has other names (hard links) and is not used",
        "something nobody has ever said before",
        "done.txt is a folder",
        "created is a folder",
        "saved/x.txt can only be read",
        "written.txt was not written: the file would be too large",
    ],
)
@pytest.mark.parametrize("said", ["write x to x.txt", "replace x with y in x.txt", "note: x"])
async def test_a_change_is_done_only_if_the_tool_says_so(
    bench: Bench, said: str, problem: str
) -> None:
    bench.broken = dict.fromkeys(("write_file", "edit_file", "note"), problem)
    reply = await bench.say(said)
    assert "Done" not in reply
    assert "Noted" not in reply
    assert problem in reply


@pytest.mark.parametrize(
    "done", ["File x.txt written (1 byte).", "Successfully wrote x.txt", "x.txt was updated", "OK"]
)
async def test_a_change_that_the_tool_confirms_in_other_words_is_done(
    bench: Bench, done: str
) -> None:
    bench.broken["write_file"] = done
    assert "Done" in await bench.say("write x to x.txt")


async def test_a_refused_path_is_no_content(bench: Bench) -> None:
    bench.broken["read_file"] = "../x.txt leads out of the workspace"
    assert "did not work" in await bench.say("read ../x.txt")


async def test_a_search_without_hits_says_so(bench: Bench) -> None:
    assert await bench.say("search for zebra in files") == "Nothing found."
