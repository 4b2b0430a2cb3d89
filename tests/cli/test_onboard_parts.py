"""The changes of onboarding, as values: variables of secrets, lines of secrets.env and USER.md."""

from __future__ import annotations

import os
from collections.abc import Sequence
from errno import EIO
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.app.setup.changes import (
    ConfigPart,
    fit_window,
    model_changes,
    with_name,
    write,
)
from nanobot.app.setup.model import ModelStep
from nanobot.channel import Person
from nanobot.cli.onboard.wizard import TerminalInterview, read_options
from nanobot.cli.parser import build_parser
from nanobot.clock import SystemClock
from nanobot.config.changes import ExistingFiles
from nanobot.config.load import update_env_file
from nanobot.config.model import ModelSettings
from nanobot.config.yamltext import ConfigChange
from nanobot.errors import NanobotError, ProviderError, StorageError
from nanobot.memory.documents import template_folder
from nanobot.providers.dialect import is_near
from nanobot.providers.discovery import LocalServer
from nanobot.providers.known_servers import PROVIDERS, KnownProvider
from nanobot.testing import ScriptedPerson
from nanobot.validation import SecretStr, build
from tests.doubles.openai.answers import Step
from tests.doubles.openai.faults import server_error
from tests.doubles.openai.server import FakeOpenAI

KEY = ("model", "api_key")


def says_no(_: object) -> Step:
    """A model that exists and does not answer."""
    return server_error()


@pytest.mark.parametrize(
    ("config", "secrets", "environ", "wanted"),
    [
        ("", "", {}, "MODEL_API_KEY"),
        ("model:\n  api_key: ${MINE}\n", "MINE=old\n", {}, "MINE"),
        ("model:\n  api_key: ${MINE}\n", "", {"MINE": "other"}, "MODEL_API_KEY"),
        ("", "MODEL_API_KEY=other\n", {}, "MODEL_API_KEY_2"),
        ("", "", {"MODEL_API_KEY": "other"}, "MODEL_API_KEY_2"),
        ("", "MODEL_API_KEY=old\n", {"MODEL_API_KEY": "new"}, "MODEL_API_KEY"),
    ],
)
def test_a_secret_gets_a_variable_in_which_it_is_what_counts(
    config: str, secrets: str, environ: dict[str, str], wanted: str
) -> None:
    assert ExistingFiles(config, secrets, environ).variable(KEY, "MODEL_API_KEY", "new") == wanted


def test_other_lines_of_the_secrets_stay_as_they_are() -> None:
    assert update_env_file("# mine\nexport A = 'x'\nB=1", {"A": "y", "C": '"quoted"'}) == (
        "# mine\nA=y\nB=1\nC='\"quoted\"'\n"
    )


def test_secrets_of_an_editor_that_marks_its_files_are_changed_in_their_place(
    tmp_path: Path,
) -> None:
    (tmp_path / "secrets.env").write_text("\ufeffA=old\nB=1\n")
    before = ExistingFiles.read(tmp_path, {})
    assert update_env_file(before.secrets, {"A": "new"}) == "A=new\nB=1\n"
    assert before.new_in(ConfigPart(secrets={"A": "old"})).is_empty


def test_a_secret_that_would_say_more_than_itself_is_refused() -> None:
    with pytest.raises(NanobotError, match="line break"):
        ExistingFiles("", "", {}).variable(KEY, "MODEL_API_KEY", "sk-x\u2028NANOBOT_TOOLS__EXEC=")


@pytest.mark.parametrize("known", ["", "K=old\n"])
def test_a_file_that_somebody_edits_meanwhile_keeps_both_files_as_they_are(
    tmp_path: Path, known: str
) -> None:
    config, secrets = tmp_path / "config.yaml", tmp_path / "secrets.env"
    config.write_text("model:\n  name: a\n")
    if known:
        secrets.write_text(known)
    before = ExistingFiles.read(tmp_path, {})
    config.write_text("model:\n  name: mine\n")
    part = ConfigPart((ConfigChange(("model", "name"), "b"),), {"K": "new"})
    with pytest.raises(NanobotError, match="changed in the meantime"):
        write(tmp_path, before, part)
    assert config.read_text() == "model:\n  name: mine\n"
    assert ExistingFiles.read(tmp_path, {}).secrets == known


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(EIO, "the disk is gone")])
@pytest.mark.parametrize("known", ["", "K=old\n"])
def test_secrets_stay_once_the_configuration_that_names_them_is_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, known: str
) -> None:
    config = tmp_path / "config.yaml"
    if known:
        (tmp_path / "secrets.env").write_text(known)
    fsync = os.fsync

    def interrupt(descriptor: int) -> None:
        if config.exists():
            monkeypatch.undo()
            raise error
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", interrupt)
    part = ConfigPart((ConfigChange(("model", "api_key"), "${K}"),), {"K": "new"})
    with pytest.raises((KeyboardInterrupt, StorageError)):
        write(tmp_path, ExistingFiles.read(tmp_path, {}), part)
    assert "${K}" in config.read_text()
    assert ExistingFiles.read(tmp_path, {}).secrets == "K=new\n"


def test_what_is_there_is_not_written_again() -> None:
    part = ConfigPart((ConfigChange(("model", "name"), "b"),), {"K": "2"}, (("model", "b"),))
    assert ExistingFiles("model:\n  name: b\n", "K=2\n", {}).new_in(part).is_empty


def test_a_key_and_headers_never_go_to_another_server() -> None:
    present = ModelSettings(
        name="a",
        base_url="https://a.example/v1",
        api_key=SecretStr("sk-secret"),
        headers={"X-Token": SecretStr("t-secret")},
    )
    before = ExistingFiles("model:\n  name: a\n  api_key: ${A}\n", "A=sk-secret\n", {})
    wanted = ModelSettings(name="b", base_url="https://b.example/v1", provider="openai")
    assert values_of(model_changes(wanted, present, before)) == {
        "name": "b",
        "base_url": "https://b.example/v1",
        "api_key": "",
        "headers": None,
    }
    with_key = model_changes(replace(wanted, api_key=SecretStr("sk-other")), present, before)
    assert with_key.secrets == {"MODEL_API_KEY": "sk-other"}  # A stays for as long as it is read


def test_a_small_window_leaves_room_for_the_prompt() -> None:
    wanted = fit_window(ModelSettings(name="b", provider="openai"), 16_000)
    part = model_changes(wanted, ModelSettings(), ExistingFiles("", "", {}))
    assert ConfigChange(("model", "max_completion_tokens"), 4_000) in part.changes


def test_what_a_person_wrote_about_themselves_stays() -> None:
    text = (template_folder() / "USER.md").read_text()
    once = with_name(text, "Ada")
    assert once == text.replace("(name, languages, time zone, where they live)", "- Name: Ada")
    mine = once.replace("- Name: Ada", "- Has a cat\n- Name: Ada")
    assert with_name(mine, r"Ada \1") == mine.replace("Name: Ada", r"Name: Ada \1")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "- Name: Ada\n"),
        ("I like tea.", "I like tea.\n\n- Name: Ada\n"),
        ("# Me\n\nTea.\n", "# Me\n\nTea.\n\n- Name: Ada\n"),
    ],
)
def test_a_name_is_written_whatever_stands_in_the_file(text: str, wanted: str) -> None:
    assert with_name(text, "Ada") == wanted


def model_at(name: str, base_url: str) -> ModelSettings:
    """Return the settings for a chosen model on a server."""
    return ModelSettings(name=name, base_url=base_url, provider="openai")


def step(
    person: Person,
    *arguments: str,
    present: ModelSettings | None = None,
    found: Sequence[LocalServer] = (),
    providers: Sequence[KnownProvider] = PROVIDERS,
    clock: SystemClock | None = None,
) -> ModelStep:
    """Return the step of a first run, with the local servers `found`."""

    async def find() -> Sequence[LocalServer]:
        return found

    options = build_parser().parse_args(["onboard", *arguments])
    options.home = Path()
    settings, before = present or ModelSettings(), ExistingFiles("", "", {})
    known, clock = read_options(options), clock or SystemClock()
    return ModelStep(person, known, settings, before, clock, find, providers)


def values_of(part: ConfigPart) -> dict[str, object]:
    """Return the changed keys with their values."""
    return {change.path[-1]: change.value for change in part.changes}


async def test_a_model_is_chosen_from_what_was_found_and_asked_something_first() -> None:
    async with FakeOpenAI() as server, FakeOpenAI(api_key="sk-right") as other:
        ollama = LocalServer("Ollama", server.base_url, ("tiny", "large", "huge", "vast"))
        person = ScriptedPerson(
            *("Another server", other.base_url, "sk-wrong", "sk-right", "many", "32,768")
        )
        part = await step(person, found=(ollama,)).run()
        assert person.remaining == 0
        assert "Ollama on this machine: tiny, large, huge and 1 more" in "\n".join(person.said)
        assert part.secrets == {"MODEL_API_KEY": "sk-right"}
        assert values_of(part) == {
            "name": "fake-model",
            "base_url": other.base_url,
            "context_window": 32_768,
            "api_key": "${MODEL_API_KEY}",
        }
        assert any("tools" in one.body for one in other.requests)
        assert not server.requests
    assert "sk-" not in "\n".join(person.said)


async def test_address_and_key_need_not_be_typed_again_after_a_failure() -> None:
    async with FakeOpenAI(says_no, api_key="sk-right", models=("tiny", "large")) as server:
        person = ScriptedPerson(
            *("Another server", server.base_url, "sk-right", "large", "n"),
            *("Another server", "", "", "", "n"),
        )
        asking = step(person)
        for _ in range(2):
            with pytest.raises(ProviderError):
                await asking.run()
        assert person.remaining == 0
        *_, last = (one for one in server.requests if "chat" in one.path)
    assert last.body["model"] == "large"


async def test_a_key_that_was_typed_is_not_offered_to_another_server() -> None:
    nowhere = "http://127.0.0.1:9/v1"
    async with FakeOpenAI() as server:
        person = ScriptedPerson(
            *("Another server", nowhere, "sk-first", "tiny", "8000"),
            *("Another server", server.base_url, "", "8000"),
        )
        asking = step(person, "--no-test")
        await asking.run()
        part = await asking.run()
        assert person.remaining == 0
        assert part.secrets == {}
        assert not any("sk-first" in str(one.headers) for one in server.requests)


async def interview(
    home: Path, monkeypatch: pytest.MonkeyPatch, person: ScriptedPerson, *arguments: str
) -> ConfigPart | None:
    """Return the changes after all questions, or None if the person declines."""
    monkeypatch.setenv("NANOBOT_HOME", str(home))
    options = build_parser().parse_args(["onboard", *arguments])
    options.home = home
    answered = await TerminalInterview(person, read_options(options)).run()
    return answered[1] if answered else None


async def test_a_step_that_fails_is_taken_again_from_what_was_answered_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text("agent:\n  timezone: UTC\n")
    async with FakeOpenAI(says_no, api_key="sk-right", models=("tiny", "large")) as server:
        person = ScriptedPerson(
            *("y", "Another server", server.base_url, "sk-right", "large", "n"),
            *("y", "", "", "", "", "y", "8000"),
            *("n", "n"),
            *("y", "Ada", "Berlin", "Europe/Berlin"),
            "y",
        )
        part = await interview(tmp_path, monkeypatch, person)
        assert person.remaining == 0
        assert part
        assert dict(part.summary) == {
            "model": f"large at {server.base_url}, not checked",
            "you": "Ada",
            "time zone": "Europe/Berlin",
        }
        assert part.unchecked == ("model",)


async def test_what_is_no_key_is_asked_for_again_and_goes_nowhere() -> None:
    async with FakeOpenAI(api_key="sk-right") as server:
        wrong = ("sk-\u200bcopied-from-a-page", "sk- right")
        person = ScriptedPerson("Another server", server.base_url, *wrong, "sk-right", "8000")
        part = await step(person).run()
        assert person.remaining == 0
        assert part.secrets == {"MODEL_API_KEY": "sk-right"}
        assert {one.headers.get("authorization") for one in server.requests} == {"Bearer sk-right"}
    said = "\n".join(person.said)
    assert said.count("a non-ASCII character") == 2


async def test_what_a_server_refuses_is_told_without_the_names_of_settings() -> None:
    async with FakeOpenAI(api_key="sk-right") as server:
        person = ScriptedPerson("Another server", server.base_url, "sk-wrong", "sk-right", "8000")
        await step(person).run()
    said = "\n".join(person.said)
    assert "Check the key: the server does not accept it." in said
    assert "model.api_key" not in said


async def test_another_server_is_no_known_one_unless_it_is_typed() -> None:
    offered: list[str] = []

    class Reader(ScriptedPerson):
        async def ask(self, question: str, default: str = "", *, secret: bool = False) -> str:
            offered.append(default)
            return await super().ask(question, default, secret=secret)

    person = Reader("Another server", "", "nowhere", "http://127.0.0.1:9/v1", "", "tiny", "8000")
    await step(person, "--no-test").run()
    assert person.remaining == 0
    assert "api.openai.com" not in "".join(offered)
    assert "api.openai.com" not in "\n".join(said for said in person.said if "address" in said)


@pytest.mark.parametrize("base_url", ["", "http://127.0.0.1:9/v1"])
async def test_where_a_server_of_ones_own_says_nothing_little_is_assumed_and_fits(
    base_url: str,
) -> None:
    async with FakeOpenAI() as server:
        wanted = model_at("fake-model", base_url or server.base_url)
        wanted = await step(ScriptedPerson("")).with_window(wanted)
    changed = values_of(model_changes(wanted, ModelSettings(), ExistingFiles("", "", {})))
    assert changed["context_window"] == 4_096
    assert build(ModelSettings, changed)


async def test_a_window_that_is_set_for_the_same_model_stays() -> None:
    here = "http://127.0.0.1:9/v1"
    present = ModelSettings(name="a", base_url=here, context_window=20_000)
    for name, answers, wanted in (("a", (), 20_000), ("b", ("",), 4_096)):
        asking = step(ScriptedPerson(*answers), present=present)
        assert (await asking.with_window(model_at(name, here))).context_window == wanted
    assert is_near("http://gpu-box:8000/v1")
    assert not is_near("https://openrouter.ai/api/v1")
