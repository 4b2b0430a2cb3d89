"""docs/models.md, the example file and the catalogue of providers agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nanobot.config.settings import Settings
from nanobot.providers.known_servers import PROVIDERS, KnownProvider
from tests.config.homes import Home

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "models.md").read_text("utf-8")
KEYS = {one.key_variable: f"sk-{one.id}" for one in PROVIDERS if one.key_variable}
_SECTION = re.compile(r"^###? ([^\n]+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def load(home: Home, text: str) -> Settings:
    home.write(text)
    settings = home.load(KEYS | {"MODEL_API_KEY": "sk-other"})
    assert settings.warnings == ()
    return settings


@pytest.mark.parametrize("known", PROVIDERS, ids=lambda one: one.id)
def test_each_provider_has_an_example_that_can_be_used(home: Home, known: KnownProvider) -> None:
    section = dict(_SECTION.findall(PAGE))[known.name]
    (example,) = _YAML.findall(section)
    model = load(home, example).model
    assert (model.provider, model.base_url) == ("openai", known.base_url)
    assert model.api == known.api
    assert model.name in (known.example, "")
    assert model.name or known.is_local
    assert model.api_key.get_secret_value() == KEYS.get(known.key_variable, "")
    assert "context_window" in example, "the default suits few models"


def test_all_other_examples_can_be_used(home: Home) -> None:
    examples = _YAML.findall(PAGE)
    assert len(examples) > len(PROVIDERS)
    for example in examples:
        assert load(home, example).model.provider == "openai", example


@pytest.mark.parametrize("known", PROVIDERS, ids=lambda one: one.id)
def test_the_table_and_the_example_file_have_each_address(known: KnownProvider) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| [{known.name}]")]
    cells = [cell.strip(" `") for cell in row.split("|")[2:-1]]
    assert cells == [known.base_url, known.key_variable, known.embeddings, known.transcription]
    example = (ROOT / "config.example.yaml").read_text("utf-8")
    assert re.search(rf"{re.escape(known.name)} +{re.escape(known.base_url)}$", example, re.M) or (
        known.base_url in example and known.id == "openai"
    )


def test_a_script_is_told_every_id() -> None:
    page = (ROOT / "docs" / "onboarding.md").read_text("utf-8")
    row = page.partition("\n- `--provider ID`")[2].partition("\n- ")[0]
    assert [one.id for one in PROVIDERS] == re.findall(r"`([a-z]+)`", row)
