"""The page Statistics, and the data of a plot."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import Browser, expect
from selectolax.lexbor import LexborHTMLParser

from nanobot.providers.port import Usage
from nanobot.testing.model import ScriptedModel, says
from nanobot_web.plots import Series, bars, lines, number
from tests.channels.web.browser import PHONE, browse, violations
from tests.channels.web.support import serving

PRICES = {"model": {"prices": {"input": 2, "output": 8}}}


async def test_what_was_used_is_drawn_and_in_tables(tmp_path: Path) -> None:
    model = ScriptedModel(says("Hello.", usage=Usage(prompt=1200, completion=30, cached=300)))
    async with serving(tmp_path, model, config=PRICES) as web, web.visit() as visit:
        chat = await visit.new_chat()
        await visit.say(chat, "hello")
        text = (await visit.get("/figures"))[1]
        assert "1 turns, 1,200 tokens in, 30 out" in re.sub(r"\s+", " ", text)
        page = LexborHTMLParser(text)
        drawn = next(one for one in page.css("svg") if "Tokens by day" in (one.html or ""))
        columns = drawn.css("g.column")
        assert len(columns) == 30
        assert "in, cached 300" in columns[-1].text()
        assert "25.0 %" in page.css("details tbody tr")[0].text()
        text = (await visit.get("/figures?days=365"))[1]
        assert "Tokens by week" in text
        assert chat in text


async def test_an_empty_home_has_figures_too(tmp_path: Path, browser: Browser) -> None:
    async with serving(tmp_path) as web, browse(browser, web, size=PHONE, scheme="dark") as page:
        await page.goto(f"{web.base}/figures?days=90")
        await expect(page.get_by_text("0 turns")).to_be_visible()
        await expect(page.get_by_text("To see costs")).to_be_visible()
        assert await violations(page) == []
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE["width"]


async def test_figures_are_the_owners_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit("telegram:7") as visit:
        assert (await visit.get("/figures"))[0] == 404


def test_bars_stand_on_each_other_and_reach_the_axis() -> None:
    plot = bars(["a", "b"], [Series("x", [1, 0]), Series("y", [3, None])], "things")
    low, high = plot.columns[0].shapes
    assert (low.mark, high.mark) == ("solid", "stripes")
    assert low.y + low.height == plot.base
    assert high.y + high.height == low.y
    assert high.y == plot.top  # 4 is the end of the axis
    assert plot.columns[1].shapes == []
    assert plot.columns[0].title == "a: x 1, y 3 things"
    assert [tick.text for tick in plot.ticks] == ["0", "1", "2", "3", "4"]


def test_a_line_breaks_where_there_is_no_value() -> None:
    plot = lines(["a", "b", "c", "d"], [Series("x", [1, 2, None, 2])], "s")
    ((_, path),) = plot.paths
    assert (path.count("M"), path.count("L")) == (2, 1)
    assert [len(column.shapes) for column in plot.columns] == [1, 1, 0, 1]
    assert plot.columns[2].title == "c: none s"


def test_axes_are_round_for_any_size() -> None:
    assert [number(value) for value in (0, 0.25, 12, 1500, 2.5e6, 3e9)] == [
        *("0", "0.25", "12", "1.5 k", "2.5 M", "3 G"),
    ]
    for most in (0, 1e-6, 0.3, 7, 99, 1234, 5e7):
        plot = bars(["a"], [Series("x", [most])], "")
        assert 2 <= len(plot.ticks) <= 6
        assert all(shape.y >= plot.top for shape in plot.columns[0].shapes)
    assert bars([str(day) for day in range(31)], [], "").labels[-1].text == "30"
    assert len(bars([str(day) for day in range(90)], [], "").labels) <= 10
