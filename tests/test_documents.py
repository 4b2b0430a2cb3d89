"""All links in the docs have targets, and the code of docs/extending.md runs."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nanobot.bus.events import InboundMessage
from nanobot.commands import CommandCall, CommandRegistry
from nanobot.config.schema import section_schema
from nanobot.messages import ToolCall
from nanobot.session.session import Session
from nanobot.testing import FakeClock
from nanobot.tooling import TurnContext
from nanobot.tooling.registry import ToolRegistry
from nanobot.validation import Invalid, build

ROOT = Path(__file__).parents[1]
HELPER = ROOT / "channels" / "nanobot_whatsapp" / "bridge" / "README.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), HELPER]

_BLOCK = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert [link for link in _links(page) if not _leads_somewhere(page, link)] == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached, left = set[Path](), [ROOT / "README.md"]
    while left:
        page = left.pop().resolve()
        if page.suffix == ".md" and page not in reached:
            reached.add(page)
            left += [page.parent / link.partition("#")[0] for link in _links(page)]
    assert [page for page in PAGES if page.resolve() not in reached] == []


def _links(page: Path) -> Iterator[str]:
    """Return the links within the repository."""
    found: list[str] = _LINK.findall(_BLOCK.sub("", page.read_text("utf-8")))
    return (link for link in found if not re.match("[a-z]+:", link))


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, heading = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not heading or heading in _anchors(target))


def _anchors(page: Path) -> set[str]:
    """Return the anchors of its headings."""
    titles = _HEADING.findall(_BLOCK.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_each_file_and_member_on_the_map_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    paths = re.findall(r"`((?:nanobot|channels)/[\w/.]+)`", page)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    rooms = page.partition("```\nnanobot/\n")[2].partition("```")[0]
    folders = re.findall(r"^  (\w+)/ ", rooms, re.MULTILINE)
    assert folders
    assert [name for name in folders if not (ROOT / "nanobot" / name).is_dir()] == []

    members = set[str]()
    for source in (ROOT / "nanobot").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                members |= {f"{node.name}.{name}" for name in map(_name_of, node.body)}
    named = re.findall(r"`([A-Z]\w+[a-z]\.[a-z_]+)(?:\(\))?`", page)
    assert named
    assert [name for name in named if name not in members] == []


def _name_of(node: ast.stmt) -> str:
    """Return the name of a method or field."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name
    target = node.target if isinstance(node, ast.AnnAssign) else None
    return target.id if isinstance(target, ast.Name) else ""


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the definitions in the code blocks of docs/extending.md, with a module for each
    block."""
    page = (ROOT / "docs" / "extending.md").read_text()
    found: dict[str, Any] = {}
    for number, source in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL)):
        example = ModuleType(f"example_{number}")
        monkeypatch.setitem(sys.modules, example.__name__, example)  # msgspec looks its types up
        exec(compile(source, "docs/extending.md", "exec"), vars(example))
        found |= vars(example)
    return found


async def test_the_tool_of_the_page_about_extending_works_behind_the_gate(
    examples: dict[str, Any],
) -> None:
    registry = ToolRegistry()
    registry.register(examples["Roll"](lambda sides: sides - 1))
    caller = TurnContext("cli", "direct", "cli:direct", "turn-1")
    assert (await registry.call(ToolCall("1", "roll", '{"sides": 20}'), caller)).text == "20"
    assert (
        "no such die" in (await registry.call(ToolCall("2", "roll", '{"sides": 13}'), caller)).text
    )


async def test_the_other_examples_of_that_page_work(examples: dict[str, Any]) -> None:
    message = InboundMessage("cli", "direct", "me", "/hello", "e1", FakeClock().now())
    commands = CommandRegistry([examples["HELLO"]])
    command, arguments = commands.find_call(message) or pytest.fail("no command")
    session = Session("cli:direct", FakeClock())
    answer = await command.run(CommandCall(arguments, message, session, "owner", 1))
    assert answer.text == "Hello, you."
    echo = examples["Echo"]().table()["echo.repeat"]
    assert await echo({"text": "hi", "count": 2}) == {"texts": ["hi", "hi"]}
    assert build(examples["EchoSettings"], {}).pause_seconds == 30
    with pytest.raises(Invalid):
        build(examples["EchoSettings"], {"pause_seconds": "601"})
    schema = section_schema(examples["EchoSettings"], described=False)
    assert schema["properties"]["pause_seconds"]["maximum"] == 600
