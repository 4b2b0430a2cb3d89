"""A person who uses a page only by keyboard. The pressed buttons and the browser's requests are
recorded, so that a test can find unused ones."""

from __future__ import annotations

from collections.abc import Set
from functools import cache
from importlib.resources import files
from urllib.parse import urlsplit

from playwright.async_api import Locator, Page, ViewportSize, expect
from selectolax.lexbor import LexborHTMLParser, LexborNode

from tests.channels.web.browser import DESKTOP, PHONE, Scheme, look

_BY_ITSELF = """(one) => {
    const own = one.cloneNode(false), form = one.form?.cloneNode(false);
    form?.append(own);
    return (form ?? own).outerHTML;
}"""
_UNREACHABLE = """() =>
    [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
    .filter((one) => one.checkVisibility() && !one.disabled && one.type !== "hidden")
    .filter((one) => one.tabIndex < 0)
    .map((one) => one.outerHTML)"""


class KeyboardUser:
    """Uses no clicks: each control is reached by Tab."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.pressed: set[str] = set()
        """The pressed buttons, named as in `buttons_of_templates`."""
        self.asked: set[tuple[str, str]] = set()
        """Methods and paths of the browser's requests."""
        self._looks = 0
        page.on("request", lambda request: self._note(request.method, request.url))
        page.on("download", lambda download: self._note("GET", download.url))

    async def press(self, what: Locator) -> None:
        """Press a button, follow a link, or unfold a part."""
        await what.wait_for()
        self.pressed |= _buttons(await what.evaluate(_BY_ITSELF))
        await self._reach(what)
        await self.page.keyboard.press("Enter")

    async def button(self, name: str, inside: Locator | None = None) -> None:
        """Press the only button with that name."""
        await self.press((inside or self.page).get_by_role("button", name=name, exact=True))

    async def follow(self, name: str) -> None:
        """Follow the first link with that name."""
        await self.press(self.page.get_by_role("link", name=name, exact=True).first)

    async def write(self, label: str, text: str) -> None:
        """Fill a field, replacing its text."""
        field = self.page.get_by_label(label, exact=True)
        await self._reach(field)
        await self.page.keyboard.press("Control+a")
        await self.page.keyboard.type(text)

    async def choose(self, label: str, option: str) -> None:
        """Choose an option of a list."""
        field = self.page.get_by_label(label, exact=True)
        await self._reach(field)
        await self.page.keyboard.press("Home")
        while await field.evaluate("(one) => one.selectedOptions[0].text") != option:
            await self.page.keyboard.press("ArrowDown")

    async def tick(self, label: str) -> None:
        """Toggle a checkbox."""
        field = self.page.get_by_label(label, exact=True)
        await self._reach(field)
        await self.page.keyboard.press("Space")

    async def attach(self, path: str) -> None:
        """Choose a file to send."""
        field = self.page.get_by_label("Add files")
        async with self.page.expect_file_chooser() as chosen:
            await self._reach(field)
            await self.page.keyboard.press("Enter")
        await (await chosen.value).set_files(path)

    async def look(self) -> None:
        """Look at the view on a phone at night, and on a desktop by day."""
        page, self._looks = self.page, self._looks + 1
        views: tuple[tuple[ViewportSize, Scheme], ...] = ((DESKTOP, "light"), (PHONE, "dark"))
        for size, scheme in views:
            await page.set_viewport_size(size)
            await page.emulate_media(color_scheme=scheme)
            path = urlsplit(page.url).path.strip("/").replace("/", "-")
            await look(page, f"{path}-{self._looks}-{scheme}")
            assert await page.evaluate(_UNREACHABLE) == [], (page.url, scheme)

    def _note(self, method: str, url: str) -> None:
        self.asked.add((method, urlsplit(url).path))

    async def _reach(self, what: Locator) -> None:
        """Reach a control from the one before it."""
        await what.focus()
        await self.page.keyboard.press("Shift+Tab")
        await self.page.keyboard.press("Tab")
        await expect(what).to_be_focused()


@cache
def buttons_of_templates() -> Set[str]:
    """Return every kind of button on the pages."""
    templates = files("nanobot_web").joinpath("templates").iterdir()
    return {name for one in templates for name in _buttons(one.read_text("utf-8"))}


def _buttons(html: str) -> Set[str]:
    """Return the actions of the buttons in HTML or in a template."""
    return {_form_of(one) for one in LexborHTMLParser(html).css("button")}


def _form_of(button: LexborNode) -> str:
    form: LexborNode | None = button
    while form is not None and form.tag != "form":
        form = form.parent
    given = button.attributes
    means = [form.attributes.get("action") or _data(form)] if form is not None else []
    if given.get("value"):
        means.append(f"{given['name']}={given['value']}")
    means.append(given.get("data-say") or _data(button))
    return " ".join(one for one in means if one)


def _data(node: LexborNode) -> str:
    return " ".join(sorted(one for one in node.attributes if one.startswith("data-")))
