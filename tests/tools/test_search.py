"""find_files and grep."""

from __future__ import annotations

import os
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.errors import ToolError
from nanobot.tooling.registry import MAX_RESULT
from nanobot.tools.grep_worker import MatchRequest
from nanobot.tools.read_tools import compile_glob, match

if TYPE_CHECKING:
    from tests.tools.conftest import FileToolKit


async def test_files_are_found_by_name_at_any_depth(kit: FileToolKit) -> None:
    for path in ("a.md", "n/b.md", "n/m/c.md", "n/d.txt", ".git/e.md"):
        kit.put(path, "x")
    find = kit.says
    assert await find("find_files", pattern="*.md") == "a.md\nn/b.md\nn/m/c.md"
    assert await find("find_files", pattern="*.md", path="n") == "n/b.md\nn/m/c.md"
    assert await find("find_files", pattern="n/*") == "n/b.md\nn/d.txt\nn/m/"
    assert await find("find_files", pattern="**/m/*.md") == "n/m/c.md"
    assert await find("find_files", pattern="n/**") == "n/\nn/b.md\nn/d.txt\nn/m/\nn/m/c.md"
    assert await find("find_files", pattern="{a,b}.{md,txt}") == "a.md\nn/b.md"
    assert await find("find_files", pattern="*.pdf") == "no matches for *.pdf"


async def test_many_names_are_cut_and_counted(kit: FileToolKit) -> None:
    for number in range(250):
        kit.put(f"{number:03d}.txt", "")
    found = await kit.says("find_files", pattern="*")
    assert found.endswith("[200 of 250 matches. Narrow the pattern]")


async def test_useless_patterns_and_places_are_explained(kit: FileToolKit) -> None:
    kit.put("a.txt", "x")
    complain = kit.complains
    assert "must be relative" in await complain("find_files", pattern="/etc/*")
    assert "must be relative" in await complain("find_files", pattern="../*")
    assert "empty" in await complain("find_files", pattern="")
    assert "too many" in await complain("find_files", pattern="{a,b}" * 10)
    assert "not a folder" in await complain("find_files", pattern="*", path="a.txt")
    assert "there is no b" in await complain("find_files", pattern="*", path="b")
    assert "there is no b" in await complain("grep", pattern="x", path="b")


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*", "a/b", True),
        ("a/*", "a/b/c", False),
        ("a/**", "a/b/c", True),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/b/b/c", True),
        ("**/*", "a", True),
        ("**/b/**/d", "a/b/c/d", True),
        ("**/b/**/d", "a/b/c/e", False),
        ("[ab].txt", "x/b.txt", True),
        ("?.txt", "ab.txt", False),
        ("./a/./b", "a/b", True),
    ],
)
def test_globs_match_as_people_expect(pattern: str, path: str, matches: bool) -> None:
    assert compile_glob(pattern)(path.split("/")) is matches


@given(st.text("ab*?[]{},/.!", max_size=60), st.lists(st.text("ab.", min_size=1), max_size=30))
def test_no_glob_hangs_or_crashes(pattern: str, names: list[str]) -> None:
    with suppress(ToolError):
        compile_glob(pattern)(names)


async def test_grep_shows_path_line_and_text(kit: FileToolKit) -> None:
    kit.put("a.txt", "alpha\nbeta\n")
    kit.put("n/b.md", "Alphabet\r\n")
    kit.put("bin", b"alpha\0")
    grep = kit.says
    assert await grep("grep", pattern="alpha") == "a.txt:1: alpha"
    assert await grep("grep", pattern="^alpha", ignore_case=True) == (
        "a.txt:1: alpha\nn/b.md:1: Alphabet"
    )
    assert await grep("grep", pattern="t$", glob="*.md") == "n/b.md:1: Alphabet"
    assert await grep("grep", pattern="beta", path="a.txt") == "a.txt:2: beta"
    assert await grep("grep", pattern="gamma") == "no matches in 2 files"


async def test_grep_shows_lines_around_without_repeating_them(kit: FileToolKit) -> None:
    kit.put("a.txt", "".join(f"{n}\n" for n in range(1, 13)))
    assert await kit.says("grep", pattern="^(2|4|10)$", context=1) == (
        "a.txt-1- 1\na.txt:2: 2\na.txt-3- 3\na.txt:4: 4\na.txt-5- 5\n--\n"
        "a.txt-9- 9\na.txt:10: 10\na.txt-11- 11"
    )


async def test_grep_says_how_much_it_cut(kit: FileToolKit) -> None:
    kit.put("a.txt", "match\n" * 1000)
    kit.put("b.txt", "match " + "x" * 5000)
    kit.put("huge.log", b"match\n" * 1_000_000)
    shown = await kit.says("grep", pattern="match")
    assert "1001 lines match in 2 files" in shown
    assert "[1 files were not searched" in shown
    assert len(shown) <= MAX_RESULT
    assert "[cut]" in await kit.says("grep", pattern="match", path="b.txt")


async def test_a_search_of_much_text_holds_little_of_it(kit: FileToolKit) -> None:
    for number in range(30):
        kit.put(f"{number:02}.txt", "word\n" * 100_000 + f"last {number}\n")
    tracemalloc.start()
    try:
        shown = await kit.says("grep", pattern="^last")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert shown.splitlines() == [f"{n:02}.txt:100001: last {n}" for n in range(30)]
    assert peak < 3_000_000  # of 15 MB


async def test_an_invalid_expression_comes_back_with_the_escaped_one(kit: FileToolKit) -> None:
    said = await kit.complains("grep", pattern="f(x")
    assert "not a regular expression" in said
    assert "f\\(x" in said
    await kit.complains("grep", pattern="")
    await kit.complains("grep", pattern="(" * 900)


def test_a_catastrophic_expression_is_stopped() -> None:
    with pytest.raises(ToolError, match="took longer"):
        match(MatchRequest("(a+)+$", False, 0, 10), [("a", b"a" * 60 + b"b")], seconds=0.2)


def test_a_search_that_is_cut_off_while_it_is_fed_is_stopped_as_well() -> None:
    texts = [("a", b"a" * 60 + b"b"), ("b", b"x" * 90_000)]
    with pytest.raises(ToolError, match="took longer"):
        match(MatchRequest("(a+)+$", False, 0, 10), texts, seconds=0.3)


async def test_names_with_broken_bytes_do_not_stop_a_search(kit: FileToolKit) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    kit.put(name, "alpha")
    assert await kit.says("grep", pattern="alpha") == "caf\\udce9.txt:1: alpha"
    assert await kit.says("find_files", pattern="caf*") == "caf\\udce9.txt"
    assert await kit.says("read_file", path="caf\udce9.txt") == "alpha"
