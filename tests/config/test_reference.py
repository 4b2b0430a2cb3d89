"""The example file, the table in the documentation and the schema agree with the code."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from nanobot.config.channels import COMMON, ChannelSettings
from nanobot.config.load import load_settings
from nanobot.config.model import FallbackModel, NamedModel
from nanobot.config.schema import config_schema, descriptions
from nanobot.config.settings import BY_NAME, SECTIONS, keys_of
from nanobot.config.tools import McpServerSettings
from nanobot.config.values import plain_values
from nanobot.validation import Checked, SecretStr, build, fields_of
from nanobot_api.settings import ApiSettings
from nanobot_telegram.settings import TelegramSettings
from nanobot_web.settings import WebSettings
from nanobot_whatsapp.settings import WhatsAppSettings
from scripts.pages import BEGIN, END, settings_table, with_current_table
from tests.config.homes import Home

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "config.example.yaml"
TOKEN = "123456789:AAF"
OF_SERVERS = tuple(f"  {name}:" for name in McpServerSettings.__struct_fields__)
OF_MODELS = tuple(f"  {name}:" for name in NamedModel.__struct_fields__)
NAMES = ("PIP_INDEX_URL:", "files:", "tickets:", "small:", "local:")
OPTIONAL = tuple(f"# {key}" for key in (*NAMES, *OF_SERVERS, *OF_MODELS))
"""Beginnings of commented lines in the example, besides lists and fallbacks."""
KEYS = [path for name, model in SECTIONS.items() for path, _ in keys_of(model, (name,))]


def test_the_example_loads_and_is_the_defaults(home: Home) -> None:
    shutil.copy(EXAMPLE, home.config)
    example = home.load()
    home.config.unlink()
    assert example == home.load()


def test_the_example_has_every_key() -> None:
    content = yaml.safe_load(EXAMPLE.read_text())
    assert set(content) == {*SECTIONS, *BY_NAME}
    assert [path for section in SECTIONS for path in _paths(content[section], section)] == KEYS


def _paths(value: object, *path: str) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, *path, key)
    else:
        yield path


@pytest.mark.parametrize(
    ("name", "model", "required"),
    [
        ("telegram", TelegramSettings, {"token": TOKEN}),
        ("whatsapp", WhatsAppSettings, {}),
        ("api", ApiSettings, {}),
        ("web", WebSettings, {}),
    ],
)
def test_the_example_has_every_key_of_a_channel_with_its_default(
    name: str, model: type[Checked], required: dict[str, str]
) -> None:
    commented = EXAMPLE.read_text().partition("\nchannels:\n")[2]
    channel = yaml.safe_load(re.sub(r"(?m)^  # ?", "", commented).partition("\n")[2])[name]
    assert [*channel] == [*COMMON, *model.__struct_fields__]
    channel["groups"] = str(channel["groups"] or "off")  # YAML's own idea of the word
    common = {key: channel.pop(key) for key in COMMON}
    assert build(ChannelSettings, common) == ChannelSettings()
    assert build(model, channel | required) == build(model, required)


def test_the_commented_parts_of_the_example_are_right_too(home: Home) -> None:
    lines = []
    for line in EXAMPLE.read_text().partition("\nchannels:")[0].splitlines():
        bare = line.lstrip()
        optional = bare.startswith(("# - ", "#   base_url", "#   api_key", *OPTIONAL))
        lines.append(line.replace("# ", "", 1) if optional else line)
    text = "\n".join(lines).replace('name: ""', "name: m", 1)
    home.write(text.replace('key: ""', "key: k"))
    settings = home.load({"LOCAL_KEY": "l", "TICKETS_TOKEN": "secret-1"})
    written = yaml.safe_load(home.config.read_text())
    shown = {key for server in written["mcp"]["servers"].values() for key in server}
    assert shown == set(McpServerSettings.__struct_fields__)
    assert [model.name for model in settings.model.fallbacks] == ["another-model", "llama3.2"]
    assert [*written["models"]["local"]] == [*NamedModel.__struct_fields__]
    local = settings.models["local"]
    assert (local.extra_body, local.prices.cache_write) == ({"top_k": 20}, 0.3)
    assert plain_values(local.headers) == {"X-Team": "home"}
    assert settings.memory.identities == (("telegram:12345", "whatsapp:4915112345678"),)
    assert plain_values(settings.tools.exec.environment) == {
        "PIP_INDEX_URL": "https://pypi.example.org/simple"
    }
    files, tickets = settings.mcp.servers.values()
    assert (files.command, files.paths) == ("mcp-server-filesystem", ("/home/ada/notes",))
    assert plain_values(tickets.headers) == {"Authorization": "Bearer secret-1"}


def test_the_table_in_the_documentation_is_current() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert with_current_table(page) == page, "run `python -m scripts.pages --write`"


@pytest.mark.parametrize("page", ["configuration.md", "channels/telegram.md"])
def test_what_the_documentation_tells_people_to_write_can_be_used(home: Home, page: str) -> None:
    text = (ROOT / "docs" / page).read_text().partition("## Configuration errors")[0]
    environ = dict.fromkeys(("OPENAI_API_KEY", "NANOBOT_MODEL__API_KEY"), "sk-1")
    environ |= {"TELEGRAM_TOKEN": TOKEN, "TELEGRAM_PROXY": "", "NANOBOT_MODEL__NAME": "m"}
    environ["TICKETS_TOKEN"] = "secret-1"
    snippets = re.findall(r"(?s)```yaml\n(.*?)```", text)
    assert len(snippets) > 5
    for snippet in snippets:
        home.write(snippet)
        token = {"NANOBOT_CHANNELS__TELEGRAM__TOKEN": TOKEN} if "telegram:\n" in snippet else {}
        assert home.load(environ | token).warnings == (), snippet


def test_the_errors_in_the_documentation_are_those_a_person_sees(home: Home) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    section = page.partition("## Configuration errors")[2]
    _, config, _, said, _, misspelt, _ = section.split("```", 6)
    home.write(config.removeprefix("yaml\n"))
    assert home.complaint().replace("HOME", "/home/ada/.nanobot") == said.strip()
    home.config.unlink()
    assert home.complaint(NANOBOT_MODEL__NMAE="gpt-5") == misspelt.strip()


def test_the_table_stands_between_its_markers_and_nowhere_else() -> None:
    page = f"before\n{BEGIN}old\n{END}after\n"
    assert with_current_table(page) == f"before\n{BEGIN}\n{settings_table()}\n{END}after\n"
    with pytest.raises(ValueError, match="the page lacks the two markers"):
        with_current_table("nothing here")


def test_every_key_has_a_row_with_a_meaning() -> None:
    rows = [line.split(": ", 1) for line in settings_table().splitlines()]
    named = {row[0].split("`")[1] for row in rows}
    assert named >= {".".join(path) for path in KEYS}
    assert named >= {f"mcp.servers.<name>.{key}" for key in McpServerSettings.__struct_fields__}
    of_one = [".".join(path) for path, _ in keys_of(NamedModel)]
    assert named >= {f"models.<name>.{key}" for key in of_one}
    assert "owner.<channel>" in named
    assert all(len(row) == 2 and len(row[1]) > 10 for row in rows)


@pytest.mark.parametrize("path", KEYS, ids=".".join)
def test_a_duration_says_its_unit_and_a_size_counts_tokens(path: tuple[str, ...]) -> None:
    section, *inner, key = path
    model = SECTIONS[section]
    for step in inner:
        field = fields_of(model)[step].type
        assert isinstance(field, type)
        assert issubclass(field, Checked)
        model = field
    meaning = descriptions(model)[key].lower()
    for unit in ("seconds", "minutes", "hours", "tokens", "megabytes"):
        assert not key.endswith(unit) or unit in meaning


def test_no_list_or_mapping_holds_sections_that_are_not_looked_at() -> None:
    fields = (field for name, model in SECTIONS.items() for _, field in keys_of(model, (name,)))
    held = {one for field in fields for one in _arguments(field.type) if _is_section(one)}
    assert held == {FallbackModel, McpServerSettings}


def _arguments(kind: object) -> Iterator[object]:
    for argument in get_args(kind):
        yield argument
        yield from _arguments(argument)


def _is_section(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Checked)


def test_the_schema_knows_every_key_and_refuses_others() -> None:
    schema = config_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert set(schema["properties"]) == {*SECTIONS, *BY_NAME}
    assert schema["additionalProperties"] is False
    for section, model in SECTIONS.items():
        definition = schema["properties"][section]
        assert set(definition["properties"]) == set(model.__struct_fields__)
        assert definition["additionalProperties"] is False
    fallbacks = schema["properties"]["model"]["properties"]["fallbacks"]
    assert [list(kind) for kind in fallbacks["items"]["anyOf"]] == [
        ["type", "minLength"],
        ["type", "properties", "required", "additionalProperties"],
    ]


def test_the_defaults_of_the_schema_are_those_of_the_settings(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {})
    for section, schema in config_schema()["properties"].items():
        if section in SECTIONS:
            assert_defaults(schema["properties"], getattr(settings, section))


def assert_defaults(declared: dict[str, Any], loaded: Checked) -> None:
    for key, schema in declared.items():
        value = getattr(loaded, key)
        if isinstance(value, Checked):
            assert_defaults(schema["properties"], value)
        elif isinstance(value, SecretStr):
            assert schema["default"] == value.get_secret_value()
        else:
            assert schema.get("default") == (list(value) if isinstance(value, tuple) else value)
