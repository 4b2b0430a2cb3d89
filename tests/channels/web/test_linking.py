"""WhatsApp's code to scan, on the page."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from playwright.async_api import Browser, Page, expect

from nanobot.testing.clock import FakeClock
from nanobot_whatsapp.linked.install import bridge_program
from nanobot_whatsapp.linked.login import SETTLING_SECONDS
from tests.channels.web.browser import browse
from tests.channels.web.keyboard import KeyboardUser
from tests.channels.web.support import Web, serving
from tests.channels.whatsapp.linked import programs
from tests.channels.whatsapp.linked.programs import BUILDS, NEW_ENOUGH, program
from tests.scratch import scratch

_HELPER = Path(programs.__file__).with_name("scripted_helper.py")

QR = {"type": "qr", "data": "2@abc,def,ghi"}
OPEN = {"type": "state", "state": "open", "me": {"number": "15550001111@s.whatsapp.net"}}


@contextlib.asynccontextmanager
async def _unlink(clock: FakeClock, *scripts: Sequence[Mapping[str, object]]) -> AsyncIterator[Web]:
    """Run a nanobot whose WhatsApp has no account yet, with these scripts of its helpers in
    order."""
    with scratch() as home:
        state = home / "state" / "channels" / "whatsapp"
        state.mkdir(mode=0o700, parents=True)
        if bridge_program(state) is not None:  # the checkout's own: the channel asks it first
            scripts = ([{"type": "state", "state": "need_pairing"}], *scripts)
        for turn, script in enumerate(scripts):
            (state / f"script-{turn}").write_text("".join(f"{json.dumps(one)}\n" for one in script))
        node = program(
            home / "bin" / "node",
            f'[ "$1" = --version ] && {{ echo {NEW_ENOUGH}; exit; }}\n'
            f'exec {sys.executable} -I -S {_HELPER} "$@"',
        )
        program(home / "bin" / "npm", BUILDS)
        whatsapp = {"enabled": True, "node": str(node)}
        config = {
            "owner": {"whatsapp": ["15550002222"]},
            "channels": {"whatsapp": whatsapp, "web": {"enabled": True}},
        }
        async with serving(home, config=config, clock=clock) as web:
            yield web


async def _show_code(page: Page) -> None:
    await page.get_by_role("link", name="Settings", exact=True).click()
    await page.get_by_role("link", name="People and channels", exact=True).click()
    await expect(page.get_by_role("row").filter(has_text="whatsapp")).to_contain_text("off")
    await page.get_by_role("button", name="Show the code to scan").click()


async def test_the_code_is_shown_to_the_owner_alone(browser: Browser) -> None:
    async with (
        _unlink(FakeClock(), [QR]) as web,
        web.visit("telegram:7") as other,
        browse(browser, web) as page,
    ):
        await _show_code(page)
        await expect(page.get_by_text("Linked devices > Link a device")).to_be_visible()
        await expect(page.get_by_role("img", name="Code to scan")).to_be_visible()
        await KeyboardUser(page).look()
        assert (await other.get("/people/sign-in?channel=whatsapp&piece=1"))[0] == 404
        assert (await other.post("/people/sign-in", {"channel": "whatsapp"}))[0] == 404
        await page.get_by_role("link", name="Back to channels").click()
        await expect(page.get_by_role("link", name="Show the code to scan")).to_be_visible()
        lines = (web.home / "logs" / "audit.jsonl").read_text().splitlines()
        done = [one for line in lines if (one := json.loads(line))["tool"] == "channels.sign_in"]
        assert [(one["by"], one["changed"]) for one in done] == [("web:owner", "name whatsapp")]


async def test_once_it_was_scanned_the_channel_runs(browser: Browser) -> None:
    clock = FakeClock()
    async with _unlink(clock, [QR, OPEN], [OPEN]) as web, browse(browser, web) as page:
        await _show_code(page)
        await expect(page.get_by_text("Linked. Waiting for the phone")).to_be_visible()
        await clock.advance(SETTLING_SECONDS)
        await expect(page.get_by_text("Linked: +15550001111.")).to_be_visible()
        await page.get_by_role("link", name="Back to channels").click()
        row = page.get_by_role("row").filter(has_text="whatsapp")
        await expect(row).to_contain_text(re.compile("running.*15550001111", re.DOTALL))


async def test_what_goes_wrong_is_said(browser: Browser) -> None:
    banned = {"type": "state", "state": "banned"}
    async with _unlink(FakeClock(), [banned]) as web, browse(browser, web) as page:
        await _show_code(page)
        await expect(page.get_by_text("WhatsApp rejects this account")).to_be_visible()
        status, text = await page.evaluate(
            "fetch('/people/sign-in?channel=telegram').then(async a => [a.status, await a.text()])"
        )
        assert status == 404
        assert "No sign-in is in progress" in text
