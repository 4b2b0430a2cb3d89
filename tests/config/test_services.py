"""The settings of speech models and of the HTTP server."""

from __future__ import annotations

import pytest

from tests.config.homes import Home

MODEL = "model:\n  name: m\n  base_url: http://127.0.0.1:1/v1\n  api_key: k\n  transcription:\n"


def test_transcription_is_off_until_it_has_a_model(home: Home) -> None:
    home.write(f"{MODEL}    language: de\n")
    transcription = home.load().model.transcription
    assert (transcription.model, transcription.base_url) == ("", "")


@pytest.mark.parametrize(
    ("written", "url", "key"),
    [
        ("", "http://127.0.0.1:1/v1", "k"),
        ("    base_url: http://127.0.0.1:1/v1/\n", "http://127.0.0.1:1/v1", "k"),
        ("    base_url: http://127.0.0.1:2/v1\n", "http://127.0.0.1:2/v1", ""),
        ("    api_key: other\n", "http://127.0.0.1:1/v1", "other"),
    ],
)
def test_transcription_takes_what_it_lacks_from_the_main_model(
    home: Home, written: str, url: str, key: str
) -> None:
    home.write(f"{MODEL}    model: w\n{written}")
    transcription = home.load().model.transcription
    assert (transcription.base_url, transcription.api_key.get_secret_value()) == (url, key)
    assert transcription.model == "w"


def test_transcription_by_the_official_api_needs_a_key_whatever_answers(home: Home) -> None:
    complaint = home.complaint("model:\n  transcription:\n    model: whisper-1\n")
    assert complaint == (
        "HOME/config.yaml:2: model.transcription.api_key: is required by the official OpenAI API\n"
        "  Write `api_key: ${OPENAI_API_KEY}` and set that variable. "
        "For another server, set `base_url`."
    )


def test_the_http_server_is_for_this_machine_unless_told_otherwise(home: Home) -> None:
    http = home.load().http
    assert (http.host, http.port, http.public_hosts) == ("127.0.0.1", 8087, ())
    home.write("http: {host: '[::]', port: 80, public_hosts: [Bot.Example.org, 10.0.0.1]}\n")
    http = home.load().http
    assert (http.host, http.port) == ("::", 80)
    assert http.public_hosts == ("bot.example.org", "10.0.0.1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http: {port: 0}\n", "http.port: must be at least 1"),
        ("http: {port: 70000}\n", "http.port: must be at most 65535"),
        ("http: {host: ''}\n", "http.host: must be a host name or an IP address"),
        ("http: {public_hosts: ['https://a.b']}\n", "http.public_hosts[0]: must be a host name"),
        ("http: {public_hosts: ['a.b:80']}\n", "http.public_hosts[0]: must be a host name"),
        ("owner: {plain: ['*']}\n", "owner: must list your ids"),
        ("owner: {plain: ['@ada']}\n", "owner.plain[0]: must be an id, not a name"),
        ("owner: {plain: ['  ']}\n", "owner.plain[0]: must not be empty"),
    ],
)
def test_a_mistake_is_named_with_its_line(home: Home, text: str, expected: str) -> None:
    assert home.complaint(text).startswith(f"HOME/config.yaml:1: {expected}")


VOICE = "model:\n  transcription:\n    command: [cat, '{input}']\n"


def test_a_program_that_listens_needs_no_server_and_no_key(home: Home) -> None:
    home.write(VOICE)
    transcription = home.load().model.transcription
    assert transcription.is_on
    assert (transcription.command, transcription.base_url) == (("cat", "{input}"), "")


@pytest.mark.parametrize(
    ("more", "line", "expected"),
    [
        ("    model: w\n    api_key: k\n", 3, "command: cannot be combined with `model`"),
        ("    read: [models]\n", 4, "read[0]: must be an absolute path"),
        ("    read: [/]\n", 4, "read[0]: would give access to nanobot's own folder"),
        ("  speech: {command: espeak-ng}\n", 4, "command: must be a list"),
        ("  speech: {model: tts-1}\n", 4, "api_key: is required by the official OpenAI API"),
    ],
)
def test_a_voice_that_cannot_work_is_refused(
    home: Home, more: str, line: int, expected: str
) -> None:
    section = "speech" if "speech" in more else "transcription"
    complaint = home.complaint(VOICE + more)
    assert complaint.startswith(f"HOME/config.yaml:{line}: model.{section}.{expected}")


def test_a_command_without_a_recording_or_in_nanobots_own_folder_is_refused(home: Home) -> None:
    assert "has no placeholder for the recording" in home.complaint(VOICE.replace("{input}", "x"))
    inside = VOICE.replace("cat", str(home.folder / "speak.sh"))
    assert "is in nanobot's own folder" in home.complaint(inside)
