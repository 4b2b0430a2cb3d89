"""Take the pictures of the page for docs/web.md and the README:

    python -m scripts.page_pictures

A real browser talks to a nanobot with a new home and the built-in model. It needs Chromium and
Playwright (`make test` installs the latter)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
SAID = (
    "My sister is called Ana, and her birthday is on the 3rd of May. Remember that.",
    "Note that I am allergic to peanuts, it is important.",
    "When is Ana's birthday?",
)
PORT = 8187


@contextmanager
def running() -> Iterator[str]:
    """Run a gateway with a page, and yield a link to it."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "config.yaml").write_text(f"http:\n  port: {PORT}\n")
        (home / "config.yaml").chmod(0o600)
        command = [str(Path(sys.executable).with_name("nanobot")), "web", "--no-open"]
        environ = {**os.environ, "NANOBOT_HOME": folder}
        process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(30)


def talk(page: Page) -> None:
    """Have the conversation of the pictures."""
    page.get_by_role("link", name="New chat", exact=True).click()
    for number, text in enumerate(SAID, 1):
        page.get_by_label("Message", exact=True).fill(text)
        page.keyboard.press("Enter")
        page.locator(".item.mine").nth(number - 1).wait_for()
        page.locator(".item.assistant .words").nth(number - 1).wait_for()


def main() -> None:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("Chromium is needed: sudo apt-get install chromium")
    with running() as link, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 700})
        page.goto(link)
        page.wait_for_url("**/chat**")
        talk(page)
        chat = page.url
        page.locator("#list a").first.wait_for()
        page.screenshot(path=PICTURES / "web-chat.png")
        page.locator('.item a[href^="/activity/turn"]').last.click()
        page.get_by_role("heading", level=1).wait_for()
        page.screenshot(path=PICTURES / "web-turn.png")
        page.get_by_role("link", name="Memory", exact=True).click()
        page.get_by_text("Ana, and her birthday").click()
        page.get_by_role("heading", level=1).wait_for()
        page.screenshot(path=PICTURES / "web-memory.png")
        page.set_viewport_size({"width": 390, "height": 844})
        page.emulate_media(color_scheme="dark")
        page.goto(chat)
        page.locator(".item.assistant .words").last.wait_for()
        page.screenshot(path=PICTURES / "web-phone.png")
        browser.close()


if __name__ == "__main__":
    main()
