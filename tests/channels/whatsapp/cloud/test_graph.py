"""Requests to Meta are answered, bounded, and never reveal the token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nanobot.channel.http import Unconfirmed, Unsent
from nanobot.errors import SendError, SendRefused
from nanobot_whatsapp.cloud.graph import Refused
from tests.channels.whatsapp.cloud.sending import Rig, set_up_rig


async def upload_file(rig: Rig, content: bytes = b"a picture") -> str:
    """Return the id of a file at Meta."""
    (rig.home.folder / "file").write_bytes(content)
    return await rig.graph.upload(rig.home.folder / "file", "file.txt", "text/plain")


async def test_the_number_is_known(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        me = await rig.graph.whoami()
        assert (me.number, me.name) == ("15550001111", "Nanobot")
        assert rig.meta.violations == []


async def test_read_and_typing_are_shown_with_one_call(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        question = rig.meta.say("hello")
        await rig.graph.mark_read(question, typing=False)
        await rig.graph.mark_read(question, typing=True)
        assert (rig.meta.reads, rig.meta.typing) == ([question, question], [question])
        assert rig.meta.violations == []


async def test_a_file_is_had_and_a_passing_fault_is_tried_again(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        id = await upload_file(rig)
        rig.meta.fail("media", 131000)
        rig.meta.cut("file")
        assert await rig.graph.download(id, 9) == b"a picture"
        assert len(rig.meta.calls_of("media")) == 3  # each attempt asks for a new address
        assert rig.meta.violations == []


async def test_a_file_is_never_larger_than_allowed(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        id = await upload_file(rig)
        with pytest.raises(SendRefused, match="larger than the limit of 8 bytes"):
            await rig.graph.download(id, 8)
        assert rig.meta.calls_of("file") == []
        rig.meta.huge("file")
        with pytest.raises(SendRefused, match="larger than the limit of 9 bytes"):
            await rig.graph.download(id, 9)


async def test_a_file_that_cannot_be_had_is_said_to_be_so(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        with pytest.raises(SendRefused, match="can't provide this file"):
            await rig.graph.download("12345", 10)
        id = await upload_file(rig)
        rig.meta.garble("file", status=503, times=3)
        with pytest.raises(SendError, match="cannot be reached"):
            await rig.graph.download(id, 100)
        rig.meta.revoke_token()
        with pytest.raises(SendRefused, match="can't provide this file"):
            await rig.graph.download(id, 100)
        assert "access token" in rig.host.reports[-1]


@pytest.mark.parametrize(
    "url",
    [
        "https://lookaside.fbsbx.com.evil.example/x",
        "https://evil.example/x",
        "http://lookaside.fbsbx.com/x",
        "https://user@lookaside.fbsbx.com/x",
        "https://lookaside.fbsbx.com:8443/x",
        "https://fbsbx.com@evil.example/",
        "https://evil.example\\.whatsapp.net/x",
        "https://evil.example%2f.whatsapp.net/x",
        "https://evil.example;.whatsapp.net/x",
        "https://evil.example .whatsapp.net/x",
        " https://lookaside.fbsbx.com/x",
        "https://lookaside.fbsbx.com/\n",
        "https://[::1/x",
        "file:///etc/passwd",
        "http://127.0.0.1:1/x",
        "",
        7,
    ],
)
async def test_the_token_goes_to_nobody_else(url: object, tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        rig.meta.garble("media", json.dumps({"url": url, "file_size": 1}).encode())
        with pytest.raises(SendRefused, match="that is not Meta's"):
            await rig.graph.download("1", 10)


async def test_an_address_that_is_none_is_a_failure_like_others(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        none = json.dumps({"url": "https://xn--zzzzz99.whatsapp.net/x", "file_size": 1}).encode()
        rig.meta.garble("media", none, times=3)
        with pytest.raises(SendError, match="an invalid address"):
            await rig.graph.download("1", 10)


async def test_what_goes_wrong_never_tells_the_token(tmp_path: Path) -> None:
    async with set_up_rig(tmp_path) as rig:
        token = rig.meta.token
        rig.meta.fail("number", 190, f"Malformed access token {token} and EAAsomebodyelses1")
        with pytest.raises(Refused) as caught:
            await rig.graph.whoami()
        assert "Malformed access token … and …" in str(caught.value)
        assert caught.value.kind == "token"
        rig.meta.garble("number", status=403)
        with pytest.raises(Unconfirmed, match="403"):
            await rig.graph.whoami()
        rig.meta.garble("number", b"[]")
        with pytest.raises(Unconfirmed, match="did not come from Meta"):
            await rig.graph.whoami()
        rig.meta.huge("number")
        with pytest.raises(Unconfirmed, match="larger than"):
            await rig.graph.whoami()
        await rig.meta.stop()
        with pytest.raises(Unsent) as unsent:
            await rig.graph.whoami()
        assert token not in f"{unsent.value!r} {unsent.value.__context__!r}"
