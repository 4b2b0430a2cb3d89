"""Untrusted text runs no script, loads nothing and breaks no page: messages, file names, titles,
arguments and results of tools, text of the model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from playwright.async_api import Browser, FilePayload, Page, expect
from selectolax.lexbor import LexborHTMLParser

from nanobot_web.markdown import to_html
from nanobot_web.streamed import StreamedText
from tests.channels.web.browser import begin_chat, browse
from tests.channels.web.support import serving
from tests.channels.web.test_formulas import MATHML

OWN = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[a](javascript:alert(1))",
    "[a](data:text/html,<script>alert(1)</script>)", "![x](https://evil.example/?q=1)",
    '"><svg onload=alert(1)>', "'-alert(1)-'", "{{ 7*7 }}{% for x in y %}", "</textarea></article>",
    '[x]: javascript:alert(1)\n\n[x]', "<https://evil.example/\"onmouseover=alert(1)>",
    "<math><mtext><style><img src=x onerror=alert(1)></style>", "<!--><script>alert(1)</script>-->",
    "<a href='javascript:alert(1)'>x</a>", "&lt;script&gt;alert(1)&lt;/script&gt;",
    "x\" autofocus onfocus=alert(1) y=\"", "<iframe srcdoc='<script>alert(1)</script>'>",
    "$\\href{javascript:alert(1)}{x}$", "| <b onclick=alert(1)> |\n|---|\n| x |",
    "<style>@import 'https://evil.example/x.css'</style>", "<base href=https://evil.example>",
    "\u202etxt.exe", "\x00\x1b[31m", "```\n</code></pre><script>alert(1)</script>\n```",
)  # fmt: skip
ALLOWED = {
    "html", "head", "body", "p", "br", "hr", "a", "em", "strong", "s", "code", "pre", "blockquote",
    "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th",
    "td", "div", "span", "button",
}  # fmt: skip
ATTRIBUTES = {"href", "rel", "target", "class", "start", "type", "tabindex", "data-copy-code"}
_MOST_CUTS = 300
CLASSES = {None, "plain", "right", "center", "code", "bar", "task", *"bcdfkns"}


def strings() -> Sequence[str]:
    """Return our texts, and the lines of the file in `NANOBOT_HOSTILE`, if any."""
    file = os.environ.get("NANOBOT_HOSTILE")
    return (*OWN, *(Path(file).read_text("utf-8").splitlines() if file else ()))


def expect_harmless(text: str) -> None:
    """Check the HTML of Markdown."""
    expect_allowed(to_html(text), text)


def expect_allowed(html: str, text: str) -> None:
    """Check that HTML has only elements, attributes and addresses of the allow-list."""
    for node in LexborHTMLParser(html).css("*"):
        assert node.tag in ALLOWED or node.tag in MATHML, (text, node.html)
        assert node.tag in MATHML or set(node.attributes) <= ATTRIBUTES, (text, node.html)
        address = node.attributes.get("href")
        assert address is None or address.lower().startswith(("http://", "https://", "mailto:"))
        assert node.attributes.get("class") in CLASSES


def test_markdown_becomes_allowed_elements_only() -> None:
    for text in strings():
        expect_harmless(text)


async def test_no_cut_of_a_streamed_text_becomes_more() -> None:
    for text in strings():
        for cut in range(1, min(len(text), _MOST_CUTS)):
            streamed = StreamedText()
            for part in (text[:cut], text[cut:]):
                streamed.add(part, restart=False)
                change = await streamed.render()
                assert change is not None
                expect_allowed(str(change["html"]), text)
            expect_allowed(str(streamed.shown()["html"]), text)


@given(st.text(alphabet="<>[]()!`'\"=:/#*_~|-&;\\ \n\tabjscript", max_size=120))
def test_any_text_becomes_allowed_elements_only(text: str) -> None:
    expect_harmless(text)


def _lines(texts: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield a conversation with each text as messages of a person and the model, as a file name and
    in the arguments of a tool, and each tenth as the result of a tool."""
    at = datetime(2026, 11, 1, tzinfo=UTC)
    times = {"created_at": at.isoformat(), "updated_at": at.isoformat()}
    yield {"_type": "metadata", "key": "cli:hostile", **times, "metadata": {"title": OWN[0]}}
    for number, text in enumerate(texts):
        seq, time = 3 * number, (at + timedelta(seconds=number)).isoformat()
        function = {"name": "probe", "arguments": json.dumps({"text": text})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        said = {"content": text, "timestamp": time}
        yield {**said, "role": "user", "seq": seq + 1, "media": [text]}
        yield {**said, "role": "assistant", "seq": seq + 2, "tool_calls": [call]}
        if number % 10 == 0 or number < len(OWN):
            yield {**said, "role": "tool", "seq": seq + 3, "tool_call_id": f"c{number}"}


_LOAD_ALL = """async () => {
    for (let more; (more = document.querySelector("[data-older]")); )
        more.outerHTML = await (await fetch(more.dataset.older)).text();
}"""


async def _expect_quiet(page: Page) -> None:
    assert await page.evaluate("document.querySelectorAll('script').length") == 1
    assert (
        await page.evaluate("document.querySelectorAll('[onerror], [onload], iframe').length") == 0
    )


async def test_no_text_of_a_conversation_runs(tmp_path: Path, browser: Browser) -> None:
    texts = strings()
    (tmp_path / "sessions").mkdir()
    written = "".join(json.dumps(line) + "\n" for line in _lines(texts))
    (tmp_path / "sessions" / "cli_hostile.jsonl").write_text(written)
    ran: list[str] = []
    async with serving(tmp_path) as web, browse(browser, web) as page:
        page.on("dialog", lambda dialog: ran.append(dialog.message))
        await page.goto(f"{web.base}/chat?c=cli:hostile")
        await _expect_quiet(page)
        await page.get_by_label("More").click()
        await page.get_by_label("Find in this conversation").fill("alert")
        await expect(page.locator("#found li").first).to_be_visible()
        await _expect_quiet(page)
        assert (await page.title()).startswith("<script>")
        # No layout queries from here on: with all texts each would take seconds.
        await page.evaluate(_LOAD_ALL)
        assert await page.locator(".item").count() >= 2 * len(texts)
        await _expect_quiet(page)
    assert ran == []


async def test_no_name_of_a_file_runs(tmp_path: Path, browser: Browser) -> None:
    async with serving(tmp_path) as web, browse(browser, web) as page:
        await begin_chat(page)
        names = ("<img src=x onerror=alert(1)>.txt", '"><script>alert(1)</script>.html')
        script = b"<script>alert(1)</script>"
        sent = [FilePayload(name=name, mimeType="text/html", buffer=script) for name in names]
        await page.get_by_label("Add files").set_input_files(sent)
        await _expect_quiet(page)
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.locator(".item.assistant").first).to_be_visible()
        await _expect_quiet(page)
        files = await page.locator(".item.mine a.file").all()
        assert len(files) == len(names)
        for file in files:
            answer = await page.request.get(f"{web.base}{await file.get_attribute('href')}")
            assert "attachment" in answer.headers["content-disposition"]
            assert answer.headers["content-type"] == "application/octet-stream"
            assert "sandbox" in answer.headers["content-security-policy"]
