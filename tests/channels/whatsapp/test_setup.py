"""The setup of WhatsApp with a person: both transports, and the number in WhatsApp's form."""

from __future__ import annotations

from nanobot.channel import SetupRequest, SetupResult
from nanobot.clock import SystemClock
from nanobot.testing import ScriptedPerson
from nanobot_whatsapp.settings import WhatsAppSettings
from nanobot_whatsapp.setup import setup
from tests.doubles.graph.server import FakeGraphAPI


async def outcome(person: ScriptedPerson, present: WhatsAppSettings | None) -> SetupResult:
    result = await setup(SetupRequest(person, present, (), {}, SystemClock()))
    assert person.remaining == 0
    assert "may ban the number" in "\n".join(person.said)
    return result


async def test_a_linked_device_is_signed_in_afterwards_and_needs_the_owners_number() -> None:
    person = ScriptedPerson("linked", "no number", "+1 (555) 000-1111", "y")
    result = await outcome(person, None)
    assert result == SetupResult(
        {"self_chat": True}, {}, ("15550001111",), "as a linked device", sign_in=True
    )


async def test_the_cloud_api_is_asked_which_number_it_is_and_secrets_stay_apart() -> None:
    async with FakeGraphAPI() as graph:
        present = WhatsAppSettings(base_url=graph.base_url, self_chat=True)
        values = [graph.phone_number_id, "EAAwrong", graph.app_secret, "", "https://a.example/wa"]
        person = ScriptedPerson("Cloud", *values, graph.token, "15550002222")  # only that again
        result = await outcome(person, present)
    assert result.who == "+15550001111 (Nanobot)"
    assert result.values == {
        "transport": "cloud",
        "self_chat": False,
        "phone_number_id": graph.phone_number_id,
        "webhook_url": "https://a.example/wa",
    }
    assert result.secrets["access_token"] == graph.token
    assert len(result.secrets["verify_token"]) >= 20
    assert not result.sign_in


async def test_an_address_that_cannot_be_is_the_only_thing_that_is_asked_again() -> None:
    async with FakeGraphAPI() as graph:
        present = WhatsAppSettings(base_url=graph.base_url)
        values = [graph.phone_number_id, graph.token, graph.app_secret, "", "nowhere"]
        person = ScriptedPerson("Cloud", *values, "https://a.example/wa", "15550002222")
        result = await outcome(person, present)
    assert "The public address that Meta calls must be a URL" in "\n".join(person.said)
    assert result.values["webhook_url"] == "https://a.example/wa"


async def test_while_meta_cannot_be_reached_what_was_typed_can_be_kept_unchecked() -> None:
    present = WhatsAppSettings(base_url="http://127.0.0.1:9")
    values = ["123456789012345", "EAAtoken", "secret", "", "https://a.example/wa"]
    person = ScriptedPerson("Cloud", *values, "n", *[""] * 5, "y", "15550002222")
    result = await outcome(person, present)
    assert result.unchecked
    assert result.secrets["access_token"] == "EAAtoken"
