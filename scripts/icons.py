"""Draw the page's icons for home screens from its SVG: `python -m scripts.icons`. It needs Chromium
and Playwright (`make test` installs the latter)."""

from __future__ import annotations

import shutil
from pathlib import Path

STATIC = Path(__file__).parents[1] / "channels" / "nanobot_web" / "static"
SIZES = (192, 512)
_PAGE = """<style>body { margin: 0; background: #fbfaf8; display: grid; place-items: center; }
svg { width: 72vmin; height: 72vmin; } body { height: 100vh; }</style>"""
"""Systems cut icons to a circle or a rounded square. The drawing is inside of both."""


def main() -> None:
    from playwright.sync_api import sync_playwright

    drawing = (STATIC / "icon.svg").read_text()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        for size in SIZES:
            page = browser.new_page(viewport={"width": size, "height": size})
            page.set_content(f"<!doctype html>{_PAGE}{drawing}")
            page.screenshot(path=STATIC / f"icon-{size}.png")
        browser.close()


if __name__ == "__main__":
    main()
