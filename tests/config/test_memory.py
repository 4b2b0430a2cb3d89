"""The settings of memory: their limits, and the messages about wrong ones."""

from __future__ import annotations

import pytest

from tests.config.homes import Home

MODEL = "model: {name: m, base_url: http://127.0.0.1:1/v1, api_key: k}\n"
SCHEDULE = "Write it like `every 24h`, `every day at 4:00` or `0 4 * * *`."
ACCOUNTS = "Write it like [[telegram:12345, whatsapp:4915112345678]]."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory:\n  window: 1\n", "HOME/config.yaml:2: memory.window: must be at least 2"),
        (
            "memory:\n  idle_minutes: -1\n",
            "HOME/config.yaml:2: memory.idle_minutes: must be at least 0",
        ),
        (
            "memory:\n  identities: [[telegram, 'x:1']]\n",
            "HOME/config.yaml:2: memory.identities: must list accounts as channel:id\n"
            f"  {ACCOUNTS}",
        ),
        (
            "memory:\n  identities: [['x:1']]\n",
            "HOME/config.yaml:2: memory.identities: must list at least two accounts for each"
            " person\n"
            f"  {ACCOUNTS}",
        ),
        (
            "memory:\n  identities: [['x:1', 'y:1'], ['x:1', 'z:1']]\n",
            "HOME/config.yaml:2: memory.identities: lists an account twice\n"
            "  Put all accounts of a person into one list.",
        ),
        (
            "memory:\n  identities: [x]\n",
            "HOME/config.yaml:2: memory.identities[0]: must be a list\n"
            "  Use [first, second], or one item per line after '- '.",
        ),
        (
            "memory:\n  embeddings:\n    modle: e\n",
            "HOME/config.yaml:3: memory.embeddings.modle: there is no such key\n"
            "  Did you mean 'model'?",
        ),
        (
            "memory:\n  embeddings:\n    model: e\n",
            "HOME/config.yaml:2: memory.embeddings.api_key: is required by the official OpenAI API"
            "\n  Write `api_key: ${OPENAI_API_KEY}` and set that variable. For another server, set"
            " `base_url`.",
        ),
        (
            "dream:\n  cron: sometimes\n",
            f"HOME/config.yaml:2: dream.cron: must be a recurring schedule\n  {SCHEDULE}",
        ),
        (
            "dream:\n  cron: at 2026-12-01T09:00\n",
            f"HOME/config.yaml:2: dream.cron: must be a recurring schedule\n  {SCHEDULE}",
        ),
        (
            "owner:\n  telegram: 12345\n",
            "HOME/config.yaml:2: owner.telegram: must be a list\n"
            "  Use [first, second], or one item per line after '- '.",
        ),
        (
            "owner: [12345]\n",
            "HOME/config.yaml:1: owner: must be a section with keys\n"
            "  Write `owner:`, with its keys on indented lines below it.",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_line_and_the_fix(
    home: Home, text: str, expected: str
) -> None:
    assert home.complaint(text) == expected


def test_a_misspelt_variable_of_a_section_within_is_corrected(home: Home) -> None:
    assert home.complaint(NANOBOT_MEMORY__EMBEDDINGS__MODLE="e").splitlines()[1] == (
        "  Did you mean NANOBOT_MEMORY__EMBEDDINGS__MODEL?"
    )


@pytest.mark.parametrize("cron", ["every 24h", "every 90m", "0 4 * * *", "*/30 9-17 * * 1-5"])
def test_dream_takes_an_interval_or_a_cron_expression(home: Home, cron: str) -> None:
    home.write(f"dream:\n  cron: {cron!r}\n")
    assert home.load().dream.cron == cron


def test_ids_stay_the_text_that_was_written(home: Home) -> None:
    home.write("owner:\n  telegram: [0123, +49151]\nmemory:\n  identities: [[x:007, y:+1]]\n")
    settings = home.load()
    assert settings.owner == {"telegram": ("0123", "+49151")}
    assert settings.memory.identities == (("x:007", "y:+1"),)


def test_the_owner_of_a_channel_that_is_not_installed_is_a_warning(home: Home) -> None:
    home.write("owner:\n  nowhere: ['1']\n")
    settings = home.load()
    assert settings.owner == {"nowhere": ("1",)}
    assert "owner.nowhere: no such channel is installed" in settings.warnings[0]


def test_variables_reach_the_owner_and_sections_within(home: Home) -> None:
    environ = {
        "NANOBOT_OWNER__TELEGRAM": '["12345"]',
        "NANOBOT_MEMORY__EMBEDDINGS__BASE_URL": "http://127.0.0.1:2/v1",
        "NANOBOT_MEMORY__EMBEDDINGS__MODEL": "e",
    }
    settings = home.load(environ)
    assert settings.owner == {"telegram": ("12345",)}
    assert settings.memory.embeddings.model == "e"
    assert settings.memory.embeddings.base_url == "http://127.0.0.1:2/v1"


def test_embeddings_take_what_they_lack_from_the_main_model(home: Home) -> None:
    home.write(f"{MODEL}memory:\n  embeddings: {{model: e}}\n")
    embeddings = home.load().memory.embeddings
    assert embeddings.base_url == "http://127.0.0.1:1/v1"
    assert embeddings.api_key.get_secret_value() == "k"


def test_a_key_goes_only_to_the_server_that_it_was_given_for(home: Home) -> None:
    home.write(f"{MODEL}memory:\n  embeddings: {{model: e, base_url: http://127.0.0.1:2/v1}}\n")
    assert home.load().memory.embeddings.api_key.get_secret_value() == ""


def test_embeddings_without_a_model_are_off_and_stay_as_they_are(home: Home) -> None:
    home.write(MODEL)
    embeddings = home.load().memory.embeddings
    assert (embeddings.model, embeddings.base_url) == ("", "")


def test_a_key_for_embeddings_in_a_readable_file_is_warned_of(home: Home) -> None:
    home.write(
        f"{MODEL}memory:\n  embeddings: {{model: e, api_key: sk-1}}\n".replace(", api_key: k", ""),
        mode=0o644,
    )
    warning = "memory.embeddings.api_key: is in a file that other users can read"
    assert any(warning in said for said in home.load().warnings)
