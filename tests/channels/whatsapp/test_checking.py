"""The checks of WhatsApp by `nanobot doctor`."""

from __future__ import annotations

import json
from pathlib import Path

from nanobot.channel import CheckFinding, CheckRequest
from nanobot.testing import FakeClock
from nanobot.validation import build
from nanobot_whatsapp.settings import WhatsAppSettings
from nanobot_whatsapp.setup import check
from tests.doubles.graph import FakeGraphAPI


async def run_check(folder: Path, **options: str) -> list[CheckFinding]:
    settings = build(WhatsAppSettings, options)
    return list(await check(CheckRequest(settings, folder, FakeClock(), 10.0)))


async def test_a_linked_account_is_named_and_one_that_is_not_has_to_be_linked(
    tmp_path: Path,
) -> None:
    credentials = tmp_path / "auth" / "creds.json"
    credentials.parent.mkdir()
    said = []
    me = {"id": "15550001111:7@s.whatsapp.net"}
    for known in ({"me": me}, {"me": me, "account": {"details": "x"}}):
        credentials.write_text(json.dumps(known))
        *_, account = await run_check(tmp_path, node="/no/such/node")
        said.append((account.state, account.text))
    assert said == [("fail", "no account is linked"), ("ok", "linked to +15550001111")]


async def test_meta_is_asked_which_number_it_is_and_whether_it_takes_the_token(
    tmp_path: Path,
) -> None:
    async with FakeGraphAPI() as graph:
        options = graph.settings() | {"webhook_url": "https://example.org/whatsapp"}
        (known,) = await run_check(tmp_path, **options)
        graph.revoke_token()
        (refused,) = await run_check(tmp_path, **options)
    assert (known.state, known.text[:28]) == ("ok", "Meta recognizes the number +")
    assert (refused.state, "access_token" in refused.hint) == ("fail", True)
    (away,) = await run_check(tmp_path, **options)
    assert away.text.startswith("Meta cannot be reached")
