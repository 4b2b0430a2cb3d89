"""Whatever a page links to is there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from nanobot.messages import ToolCall
from nanobot.tooling import TurnContext
from nanobot.tooling.registry import ToolRegistry

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

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
    """Those to other places of the repository."""
    found: list[str] = _LINK.findall(_BLOCK.sub("", page.read_text("utf-8")))
    return (link for link in found if not re.match("[a-z]+:", link))


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, heading = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not heading or heading in _anchors(target))


def _anchors(page: Path) -> set[str]:
    """What its headings are called in a link."""
    titles = _HEADING.findall(_BLOCK.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


async def test_the_tool_of_the_page_about_extending_works_behind_the_gate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    (source,) = re.findall(r"```python\n(from .*?)```", page, re.DOTALL)
    example = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", example)  # a dataclass looks its module up
    exec(compile(source, "docs/extending.md", "exec"), vars(example))
    registry = ToolRegistry()
    registry.register(example.Roll(lambda sides: sides - 1))
    caller = TurnContext("cli", "direct", "cli:direct", "turn-1")
    assert (await registry.call(ToolCall("1", "roll", '{"sides": 20}'), caller)).text == "20"
    assert (
        "no such die" in (await registry.call(ToolCall("2", "roll", '{"sides": 13}'), caller)).text
    )
