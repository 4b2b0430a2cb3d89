"""A conversation's key contains its chat."""

from __future__ import annotations

import pytest

from nanobot.bus.events import Address


@pytest.mark.parametrize(
    ("key", "address"),
    [
        ("telegram:7", Address("telegram", "7")),
        ("telegram:-100:3", Address("telegram", "-100", "3")),
        ("whatsapp:15551234@s.whatsapp.net", Address("whatsapp", "15551234@s.whatsapp.net")),
        ("matrix:!room:example.org", Address("matrix", "!room:example.org")),
        ("matrix:!room:example.org:3", Address("matrix", "!room:example.org", "3")),
        ("cli:direct", Address("cli", "direct")),
        ("cli:taxes:spain", Address("cli", "taxes:spain")),
        ("cli:taxes:2026", Address("cli", "taxes:2026")),
        ("cli:telegram:7:3", Address("cli", "telegram:7:3")),
        ("cli:", Address("cli", "")),
        ("x::3", Address("x", ":3")),
    ],
)
def test_a_chat_is_found_again_by_the_key_of_its_conversation(key: str, address: Address) -> None:
    assert Address.of(key) == address
    assert address.key == key
