"""A person's hand on a page: with a pointer, or on the keyboard alone. It keeps which buttons it
pressed and what the browser asked for, so that a test can tell what nobody ever touched."""

from __future__ import annotations

from collections.abc import Set
from functools import cache
from importlib.resources import files
from urllib.parse import urlsplit

from playwright.async_api import Locator, Page, expect
from selectolax.lexbor import LexborHTMLParser, LexborNode

from tests.channels.web.looking import violations

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
    """`size` is the view's; with `keyboard` nothing is clicked, and what is pressed is reached by
    Tab."""

    def __init__(self, page: Page, *, keyboard: bool) -> None:
        self.page, self._keyboard = page, keyboard
        self.pressed: set[str] = set()
        """The buttons, as `buttons_of_templates` names them."""
        self.asked: set[tuple[str, str]] = set()
        """Methods and paths of what the browser asked for."""
        page.context.on(
            "request", lambda request: self.asked.add((request.method, urlsplit(request.url).path))
        )

    async def press(self, what: Locator) -> None:
        """Press a button, follow a link, unfold what is folded."""
        await what.wait_for()
        self.pressed |= _buttons(await what.evaluate(_BY_ITSELF))
        if self._keyboard:
            await self._reach(what)
            await self.page.keyboard.press("Enter")
        else:
            await what.click()

    async def button(self, name: str, inside: Locator | None = None) -> None:
        """Press the one button of that name."""
        await self.press((inside or self.page).get_by_role("button", name=name, exact=True))

    async def follow(self, name: str) -> None:
        """Follow the first link of that name."""
        await self.press(self.page.get_by_role("link", name=name, exact=True).first)

    async def write(self, label: str, text: str) -> None:
        """Write into an empty or a filled field."""
        field = self.page.get_by_label(label, exact=True)
        if self._keyboard:
            await self._reach(field)
            await self.page.keyboard.press("Control+a")
            await self.page.keyboard.type(text)
        else:
            await field.fill(text)

    async def choose(self, label: str, option: str) -> None:
        """Choose what a list offers."""
        field = self.page.get_by_label(label, exact=True)
        if self._keyboard:
            await self._reach(field)
            await self.page.keyboard.press("Home")
            while await field.evaluate("(one) => one.selectedOptions[0].text") != option:
                await self.page.keyboard.press("ArrowDown")
        else:
            await field.select_option(label=option)

    async def tick(self, label: str) -> None:
        """Change a box to tick."""
        field = self.page.get_by_label(label, exact=True)
        if self._keyboard:
            await self._reach(field)
            await self.page.keyboard.press("Space")
        else:
            await field.click()

    async def attach(self, path: str) -> None:
        """Choose a file to send."""
        field = self.page.get_by_label("Add files")
        async with self.page.expect_file_chooser() as chosen:
            if self._keyboard:
                await self._reach(field)
                await self.page.keyboard.press("Enter")
            else:
                await field.locator("..").click()
        await (await chosen.value).set_files(path)

    async def look(self) -> None:
        """That everybody can read and use what is in view."""
        page = self.page
        assert await violations(page) == [], page.url
        assert await page.evaluate(_UNREACHABLE) == [], page.url
        wide = await page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert wide[0] <= wide[1], page.url

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
    return {_done_by(one) for one in LexborHTMLParser(html).css("button")}


def _done_by(button: LexborNode) -> str:
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
