"""A person who uses a page on the keyboard alone. They keep which buttons they pressed and what the
browser asked for, so that a test can tell what nobody ever touched."""

from __future__ import annotations

from collections.abc import Set
from functools import cache
from importlib.resources import files
from urllib.parse import urlsplit

from playwright.async_api import Locator, Page, ViewportSize, expect
from selectolax.lexbor import LexborHTMLParser, LexborNode

from tests.channels.web.looking import DESKTOP, PHONE, Scheme, violations

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


class Hand:
    """Nothing is clicked; what is pressed is reached by Tab."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.pressed: set[str] = set()
        """The buttons, as `buttons_of_templates` names them."""
        self.asked: set[tuple[str, str]] = set()
        """Methods and paths of what the browser asked for."""
        page.on("request", lambda request: self._note(request.method, request.url))
        page.on("download", lambda download: self._note("GET", download.url))

    async def press(self, what: Locator) -> None:
        """Press a button, follow a link, unfold what is folded."""
        await what.wait_for()
        self.pressed |= _buttons(await what.evaluate(_BY_ITSELF))
        await self._reach(what)
        await self.page.keyboard.press("Enter")

    async def button(self, name: str, inside: Locator | None = None) -> None:
        """Press the one button of that name."""
        await self.press((inside or self.page).get_by_role("button", name=name, exact=True))

    async def follow(self, name: str) -> None:
        """Follow the first link of that name."""
        await self.press(self.page.get_by_role("link", name=name, exact=True).first)

    async def write(self, label: str, text: str) -> None:
        """Write into an empty or a filled field."""
        field = self.page.get_by_label(label, exact=True)
        await self._reach(field)
        await self.page.keyboard.press("Control+a")
        await self.page.keyboard.type(text)

    async def choose(self, label: str, option: str) -> None:
        """Choose what a list offers."""
        field = self.page.get_by_label(label, exact=True)
        await self._reach(field)
        await self.page.keyboard.press("Home")
        while await field.evaluate("(one) => one.selectedOptions[0].text") != option:
            await self.page.keyboard.press("ArrowDown")

    async def tick(self, label: str) -> None:
        """Change a box to tick."""
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
        """That everybody can read and use what is in view: on a phone at night, and on a desktop by
        day."""
        page = self.page
        views: tuple[tuple[ViewportSize, Scheme], ...] = ((DESKTOP, "light"), (PHONE, "dark"))
        for size, scheme in views:
            await page.set_viewport_size(size)
            await page.emulate_media(color_scheme=scheme)
            assert await violations(page) == [], (page.url, scheme)
            assert await page.evaluate(_UNREACHABLE) == [], (page.url, scheme)
            wide = await page.evaluate("document.documentElement.scrollWidth")
            assert wide <= size["width"], (page.url, scheme)

    def _note(self, method: str, url: str) -> None:
        self.asked.add((method, urlsplit(url).path))

    async def _reach(self, what: Locator) -> None:
        """Come to it from what is before it."""
        await what.focus()
        await self.page.keyboard.press("Shift+Tab")
        await self.page.keyboard.press("Tab")
        await expect(what).to_be_focused()


@cache
def buttons_of_templates() -> Set[str]:
    """Every kind of button that pages can have."""
    templates = files("nanobot_web").joinpath("templates").iterdir()
    return {name for one in templates for name in _buttons(one.read_text("utf-8"))}


def _buttons(html: str) -> Set[str]:
    """What the buttons in a piece of HTML, or in the template of one, do."""
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
