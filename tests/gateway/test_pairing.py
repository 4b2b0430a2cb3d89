"""Giving access: the owner's commands in a chat and over the socket, and their replies."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.agent.loop import answer_of
from nanobot.bus.events import Address, InboundMessage
from nanobot.commands import CommandCall, CommandRegistry
from nanobot.errors import NanobotError, StorageError
from nanobot.gateway.pairing import Pairing
from nanobot.memory.scopes import Scopes
from nanobot.session.manager import SessionManager
from nanobot.testing import FakeClock
from tests.security.homes import (
    ANNA,
    BOB,
    GROUP,
    MENTION,
    AccessHome,
    answer_to,
    asks,
    code_in,
    lets_in,
)

OWNER = InboundMessage("telegram", "1", "1", "", "e1", FakeClock().now())


@dataclass
class PairingKit:
    """A nanobot with the owner 1 on telegram, and the owner's commands."""

    folder: Path
    home: AccessHome
    welcomed: list[tuple[str, str, str, str]] = field(default_factory=list)
    unreachable: bool = False

    def __post_init__(self) -> None:
        self.access = self.home.start()
        self.pairing = Pairing(self.access, self._welcome)
        self.operations = self.pairing.table()
        scopes = Scopes(self.access.is_owner_id)
        self.commands = CommandRegistry(is_owner=scopes.is_owner)
        self.pairing.register(self.commands)

    async def types(self, text: str, message: InboundMessage = OWNER) -> str:
        """Return the chat's reply."""
        match = self.commands.find_call(replace(message, content=text))
        assert match is not None
        command, arguments = match
        session = await SessionManager(self.folder, FakeClock()).get_or_create("telegram:1")
        return (await answer_of(command, CommandCall(arguments, message, session, "owner", 1))).text

    async def _welcome(self, there: Address, text: str) -> None:
        if self.unreachable:
            raise StorageError("the journal", "no space")
        self.welcomed.append((there.channel, there.chat_id, text, there.thread_id))


@pytest.fixture
def kit(tmp_path: Path) -> PairingKit:
    (tmp_path / "state").mkdir()
    home = AccessHome(rules=MENTION, owners={"telegram": ("1",)})
    return PairingKit(tmp_path, home)


async def test_the_owner_lets_somebody_in_from_a_chat(kit: PairingKit) -> None:
    code = await asks(kit.access, BOB)
    assert f"`Bob` (`telegram:8`): `{code}` (10 min)" in await kit.types("/pair")
    answer = await kit.types(f"/pair {code[:4].lower()} {code[4:]}")
    assert answer == "`Bob` (`telegram:8`) now has access."
    assert lets_in(kit.access, BOB)
    assert not kit.access.is_owner_id("telegram", "8")
    assert kit.welcomed == [("telegram", "8", kit.welcomed[0][2], "")]
    assert "/help" in kit.welcomed[0][2]
    assert "- `Bob` (`telegram:8`)" in await kit.types("/pair list")
    assert await kit.types("/pair revoke 8") == (
        "`Bob` (`telegram:8`) no longer has access through pairing."
    )
    assert not lets_in(kit.access, BOB)


async def test_nobody_else_gets_to_try_a_code(kit: PairingKit) -> None:
    code = await asks(kit.access, BOB)
    anna = replace(OWNER, chat_id="7", sender_id="7")
    for _ in range(20):
        assert "owner only" in await kit.types("/pair BBBBBBBB", anna)
    assert "owner only" in await kit.types(f"/pair {code}", anna)
    assert not lets_in(kit.access, BOB)
    assert "now has access" in await kit.types(f"/pair {code}")


async def test_a_chat_makes_and_unmakes_no_owner(kit: PairingKit) -> None:
    code = await asks(kit.access, BOB)
    assert "`nanobot pair approve CODE --owner`" in await kit.types(f"/pair {code} --owner")
    assert not lets_in(kit.access, BOB)
    await kit.operations["pair.approve"]({"code": code, "owner": True})
    assert "nanobot pair revoke telegram:8" in await kit.types("/pair revoke telegram:8")
    assert kit.access.is_owner_id("telegram", "8")


async def test_nothing_is_shown_or_done_in_a_group(kit: PairingKit) -> None:
    code = await asks(kit.access, BOB)
    group = replace(OWNER, chat_id="-100", is_group=True)
    for text in ("/pair", f"/pair {code}"):
        answer = await kit.types(text, group)
        assert "in a private chat" in answer
        assert code not in answer
    assert not lets_in(kit.access, BOB)


async def test_a_group_is_let_in_from_the_owners_private_chat(kit: PairingKit) -> None:
    code = code_in(await answer_to(kit.access, ANNA, GROUP))
    assert "the group `Family` (`telegram:-100`)" in await kit.types("/pair list")
    answer = await kit.types(f"/pair {code}")
    assert answer == "Everyone in the group `Family` (`telegram:-100`) now has access."
    assert kit.welcomed[0][:2] == ("telegram", "-100")
    assert kit.access.permits("telegram", BOB, GROUP)


async def test_a_group_is_welcomed_in_the_topic_where_it_asked(kit: PairingKit) -> None:
    topic = replace(GROUP, thread_id="5")
    code = code_in(await answer_to(kit.access, ANNA, topic))
    restarted = PairingKit(kit.folder, kit.home)
    await restarted.types(f"/pair {code}", replace(OWNER, channel="cli"))
    ((*place, _, thread),) = restarted.welcomed
    assert (place, thread) == (["telegram", "-100"], "5")


async def test_a_name_is_shown_as_a_name_whatever_it_holds(kit: PairingKit) -> None:
    name = "Ann` (`telegram:1`) [x](http://evil.example)\n# Owner"
    code = await asks(kit.access, replace(BOB, name=name))
    shown = "`Ann' ('telegram:1') [x](http://evil.exa…` (`telegram:8`)"
    assert f"- {shown}: " in await kit.types("/pair")
    assert (await kit.types(f"/pair {code}")).startswith(f"{shown} now has access")


async def test_mistakes_are_answered_with_what_to_do(kit: PairingKit) -> None:
    assert "eight letters" in await kit.types("/pair revoke")
    assert "Check the spelling" in await kit.types("/pair BBBBBBBB")
    assert "did not get access through pairing" in await kit.types("/pair revoke 99")
    assert await kit.types("/pair") == ("No pending requests and no approvals.")


async def test_somebody_is_in_though_no_welcome_reaches_them(kit: PairingKit) -> None:
    kit.unreachable = True
    assert "now has access" in await kit.types(f"/pair {await asks(kit.access, BOB)}")
    assert lets_in(kit.access, BOB)


async def test_the_terminal_gets_all_of_it_as_data(kit: PairingKit) -> None:
    code = await asks(kit.access, BOB)
    request = {
        "channel": "telegram", "kind": "person", "id": "8", "address": "telegram:8",
        "name": "Bob", "code": code, "seconds_left": 600,
        "asked_at": "2026-03-02T09:00:00+00:00",
    }  # fmt: skip
    empty = {"approved": [], "trouble": ""}
    assert await kit.operations["pair.list"]({}) == {"requests": [request], **empty}
    known = {key: request[key] for key in ("channel", "kind", "id", "address", "name")}
    known |= {"owner": True, "since": "2026-03-02T09:00:00+00:00"}
    assert await kit.operations["pair.approve"]({"code": code, "owner": True}) == {
        **known, "new": True,
        "text": "`Bob` (`telegram:8`) now has access, as the owner.",
    }  # fmt: skip
    assert "as the owner" in kit.welcomed[0][2]
    listed = {"requests": [], "approved": [known], "trouble": ""}
    assert await kit.operations["pair.list"]({}) == listed
    assert await kit.operations["pair.revoke"]({"id": "telegram:8"}) == {
        **known, "still_in": False,
        "text": "`Bob` (`telegram:8`) no longer has access through pairing.",
    }  # fmt: skip


async def test_who_forgot_to_say_that_it_is_them_is_told_how(tmp_path: Path) -> None:
    kit = PairingKit(tmp_path, AccessHome())
    answer = await kit.operations["pair.approve"]({"code": await asks(kit.access)})
    assert isinstance(answer, dict)
    assert "`nanobot pair approve telegram:7 --owner`" in answer["text"]


@pytest.mark.parametrize("given", [{}, {"code": 5}, {"code": " "}])
async def test_an_operation_without_its_text_is_refused(
    kit: PairingKit, given: dict[str, object]
) -> None:
    with pytest.raises(NanobotError, match="needs text"):
        await kit.operations["pair.approve"](given)
