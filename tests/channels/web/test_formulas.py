"""Formulas become MathML with an allow-list, and amounts of money stay text."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.async_api import Browser, expect
from selectolax.lexbor import LexborHTMLParser

from nanobot.clock import SystemClock
from nanobot.testing.model import ScriptedModel, says
from nanobot_web.formulas import to_mathml
from nanobot_web.markdown import to_html
from nanobot_web.streamed import StreamedText
from tests.channels.web.browser import PHONE, browse, violations, write
from tests.channels.web.support import serving

_ANSWER = r"""The roots are $x_{1,2}$, so \(a < b\) costs $5 and $6:

$$
x = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}
$$

\[ \begin{pmatrix} a & b \\ c & d \end{pmatrix} \cdot \sum_{i=0}^{n} i^2 \]
"""
_PIECES = (
    *("{", "}", "[", "]", "^", "_", "&", r"\\", "x", "12", "<b>", '"', "'", "&lt;", "%", "#", " "),
    *(r"\frac", r"\sqrt", r"\left(", r"\right)", r"\text{", r"\hbox{", r"\href{javascript:x}"),
    *(r"\begin{matrix}", r"\end{matrix}", r"\color{red}", r"\style{x:y}", r"\class{a}", r"\verb|"),
    *(r"\unicode{x3c}", r"\rule{9em}{9em}", r"\hspace{-9em}", r"\Huge", r"\fcolorbox{a}{b}{c}"),
    *(r"\operatorname{", r"\begin{array}{c|c}", r"\end{array}", r"\llap{", r"\tag{", r"\above"),
)
MATHML = {
    "math", "mfrac", "mi", "mn", "mo", "mover", "mphantom", "mroot", "mrow", "mspace", "msqrt",
    "mstyle", "msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover",
}  # fmt: skip
_ATTRIBUTES = re.compile(r"[a-z0-9. -]{1,200}")


@pytest.mark.parametrize(
    "text",
    [
        "costs $5 and $6", "from $5-$10", "it is $5 each, or 6$ for two", "$HOME/$USER",
        '"${HOME}:${PATH}"', "US$5 and CA$6", "`$x$`", "$ x $", "$$", r"\(\)", "a $5,\n6$ b",
        r"$\def\a{\a\a}\a$", r"$\frac{$", r"$\left(x$", "$x^y^z$", f"$${'x' * 2_001}$$",
    ],
)  # fmt: skip
def test_other_text_and_mistakes_stay_as_they_are(text: str) -> None:
    assert "<math" not in to_html(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("$n$ items", "<mi>n</mi>"),
        (r"**\(a_1\)**", '<strong><math display="inline"><mrow><msub>'),
        ("$$a$$", '<math display="block">'),
        (r"$\mathbb{R}$", "ℝ"),
        ("$5 + 6$", "<mo>+</mo>"),
        (r"$\text{<b>&lt;}$", "&lt;b&gt;&lt;"),
        (r"$\href{javascript:alert(1)}{x}$", "<mi>x</mi>"),
        (r"$\hspace{-50em}\Huge\color{red}x$", "<mspace></mspace><mstyle>"),
    ],
)
def test_a_formula_is_mathml(text: str, shown: str) -> None:
    assert shown in to_html(text)


@pytest.mark.parametrize(
    "pieces",
    [
        [r"\(" for _ in range(4_000)],
        [r"\[a " for _ in range(2_000)],
        ["$$a " for _ in range(2_000)],
        [f"${number}a$ " for number in range(1_200)],
        [f"$x_{{{number}}}+\\frac{{a}}{{{number}}}$\n" for number in range(330)],
    ],
    ids=["open", "open blocks", "open dollars", "many", "lines"],
)
async def test_a_block_of_formulas_costs_little_while_it_streams(pieces: list[str]) -> None:
    text = "".join(pieces)[:8_000]
    plain = re.sub(r"[$\\]", "a", text)
    assert await _stream(text) < 30 * await _stream(plain)


async def _stream(text: str) -> float:
    """Stream a text, and return the seconds of processor time."""
    answer, began = StreamedText(), time.process_time()
    for at in range(0, len(text), 80):
        answer.add(text[at : at + 80], restart=False)
        await answer.render()
    return time.process_time() - began


@given(st.lists(st.sampled_from(_PIECES), max_size=40))
def test_any_formula_has_only_allowed_elements_and_attributes(pieces: list[str]) -> None:
    html = to_mathml(f"$${' '.join(pieces)}$$") or ""
    for node in LexborHTMLParser(f"<p>{html}</p>").css("p *"):
        assert node.tag in MATHML, html
        for name, value in node.attributes.items():
            assert name not in ("href", "style", "class", "id", "mathcolor", "mathbackground")
            assert _ATTRIBUTES.fullmatch(value or ""), html


@pytest.mark.parametrize(
    "piece", ["{", r"\sqrt{", r"\left(", r"\begin{matrix}", "x^{", r"{\!", "]"]
)
@pytest.mark.parametrize("count", [1_900, 1_000_000])
def test_a_hostile_formula_is_quick(piece: str, count: int) -> None:
    tex = (piece * count)[:count]
    clock = SystemClock()
    begun = clock.monotonic()
    to_mathml(f"$${tex}$$")
    assert clock.monotonic() - begun < 1.0


async def test_a_formula_is_drawn_while_it_streams_and_at_the_end(
    tmp_path: Path, browser: Browser
) -> None:
    async with (
        serving(tmp_path, ScriptedModel(says(_ANSWER))) as web,
        browse(browser, web, size=PHONE, scheme="dark") as page,
    ):
        await page.goto(f"{web.base}/chat/new")
        await write(page, "solve it")
        formulas = page.locator(".item.assistant math")
        await expect(formulas).to_have_count(4)
        box = await formulas.nth(2).bounding_box()
        assert box is not None
        assert box["height"] > 30
        await expect(page.locator(".item.assistant")).to_contain_text("costs $5 and $6")
        assert await violations(page) == []
        await page.reload()
        await expect(formulas).to_have_count(4)
