"""The gate: each mistake of a model or a tool becomes a text that the model can act on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from nanobot.errors import ToolError, TurnStopped
from nanobot.messages import ToolCall
from nanobot.security.audit import AuditLog
from nanobot.security.redaction import Redactor
from nanobot.testing import FakeClock
from nanobot.tooling import Arguments, Decision, OwnersPolicy, Risk, Tool, ToolResult, TurnContext
from nanobot.tooling.registry import MAX_RESULT, SpillFolder, ToolRegistry
from nanobot.validation import Checked

CALLER = TurnContext("cli", "direct", "cli:direct", "turn-1")


class Place(Checked, frozen=True):
    city: str
    zip: str | None = None


class EchoArguments(Arguments, frozen=True):
    """Never shown: the tool has a description."""

    text: Annotated[str, Meta(description="What to say.")]
    times: Annotated[int, Meta(ge=1)] = 1
    mode: Literal["loud", "quiet"] = "quiet"
    limit: Annotated[int | None, Meta(ge=2, le=9)] = None
    title: str = ""
    place: Place | None = None


class NoArguments(Arguments, frozen=True):
    pass


@dataclass
class Echo(Tool):
    """Returns its text, or fails as requested."""

    name: str = "echo"
    description = "Say it."
    arguments: type[Arguments] = EchoArguments
    calls: list[EchoArguments] = field(default_factory=list)
    failure: BaseException | None = None

    async def __call__(self, arguments: EchoArguments, caller: TurnContext) -> ToolResult:
        self.calls.append(arguments)
        if self.failure is not None:
            raise self.failure
        return ToolResult(arguments.text * arguments.times)


@dataclass
class Ping(Tool):
    """Needs no arguments."""

    name = "ping"
    description = "Answer."
    arguments = NoArguments
    effects = True

    async def __call__(self, arguments: NoArguments, caller: TurnContext) -> ToolResult:
        return ToolResult(f"pong for {caller.session_key}")


def registry(*tools: Tool, **options: object) -> ToolRegistry:
    made = ToolRegistry(**options)  # type: ignore[arg-type]
    made.register_all(tools or (Echo(), Ping()))
    return made


async def call(tools: ToolRegistry, name: str, arguments: object) -> ToolResult:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return await tools.call(ToolCall("1", name, text), CALLER)


async def test_a_call_runs_the_tool_with_parsed_arguments_and_the_caller() -> None:
    echo = Echo()
    assert await call(registry(echo), "echo", {"text": "ho ", "times": 2}) == ToolResult("ho ho ")
    assert echo.calls == [EchoArguments(text="ho ", times=2)]
    assert (await call(registry(), "ping", {})).text == "pong for cli:direct"


async def test_an_unknown_tool_is_reported_with_the_nearest_name_and_the_list() -> None:
    result = await call(registry(), "ehco", {})
    assert result.is_error
    assert "no tool named 'ehco'" in result.text
    assert "Did you mean echo?" in result.text
    assert "echo, ping" in result.text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ('{"text": "a"', "not valid JSON"),
        ("hello", "not valid JSON"),
        ('["a"]', "must be a JSON object, not a list"),
        ('"a"', "must be a JSON object, not a string"),
        ("7", "must be a JSON object, not a number"),
        ('{"text": "a", "times": NaN}', "NaN"),
        ('{"text": "a", "times": -Infinity}', "-Infinity"),
        ('{"text": ' + "[" * 100 + "]" * 100 + "}", "- text: must be text"),
        ("[" * 200_000, "not valid JSON"),
        ('{"text": "' + "x" * 2_000_000 + '"}', "too large"),
        ('{"text": "a", "times": 1' + "0" * 5000 + "}", "not valid JSON"),
        ("{}", "- text: is required"),
        ("", "- text: is required"),
        ('{"txet": "a"}', "- txet: there is no such key (given: 'a'). Did you mean 'text'?"),
        ('{"text": "a", "times": "many"}', "- times: must be a whole number"),
        ('{"text": "a", "times": 0}', "- times: must be at least 1 (given: 0)"),
        ('{"text": "a", "mode": "shrill"}', "'loud' or 'quiet'"),
        ('{"text": "a", "place": {"zip": "1"}}', "- place.city: is required"),
    ],
)
async def test_wrong_arguments_are_answered_with_what_to_change(
    arguments: str, complaint: str
) -> None:
    echo = Echo()
    result = await call(registry(echo), "echo", arguments)
    assert result.is_error
    assert complaint in result.text
    assert len(result.text) < 1000
    assert echo.calls == []


async def test_what_can_only_mean_one_thing_is_tolerated() -> None:
    tools = registry()
    assert (await call(tools, "echo", json.dumps('{"text": "hi"}'))).text == "hi"
    assert (await call(tools, "echo", {"text": "hi", "times": "2"})).text == "hihi"
    assert (await call(tools, "functions.echo", {"text": "hi"})).text == "hi"
    for nothing in ("", "  ", "null", '""', "{}"):
        assert not (await call(tools, "ping", nothing)).is_error


@given(st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(str)))
def test_no_text_as_arguments_makes_a_call_raise(text: str) -> None:
    assert asyncio.run(call(registry(Echo()), "echo", text)).is_error


async def test_what_a_tool_says_about_its_failure_reaches_the_model() -> None:
    echo = Echo(failure=ToolError("no such moon", hint="Try Europa."))
    assert await call(registry(echo), "echo", {"text": "a"}) == ToolResult(
        "no such moon\nTry Europa.", is_error=True
    )


async def test_a_crash_of_a_tool_is_told_and_not_raised() -> None:
    for crash in (ValueError("inside"), RecursionError(), OSError(5, "io")):
        result = await call(registry(Echo(failure=crash)), "echo", {"text": "a"})
        assert result.is_error
        assert "echo failed unexpectedly" in result.text
        assert type(crash).__name__ in result.text


async def test_stopping_passes_through() -> None:
    for stop in (asyncio.CancelledError(), TurnStopped("stopped")):
        with pytest.raises(type(stop)):
            await call(registry(Echo(failure=stop)), "echo", {"text": "a"})


@dataclass
class Long(Echo):
    """A long text is a risk."""

    async def risk(self, arguments: EchoArguments, caller: TurnContext) -> Risk | None:
        return Risk("send", "talk", arguments.text) if len(arguments.text) > 5 else None


async def test_a_denied_call_does_not_run_and_decisions_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    echo, log = Long(), AuditLog(path, Redactor(), FakeClock())
    tools = registry(echo, policy=OwnersPolicy({"send": "never"}), audit=log)
    assert not (await call(tools, "echo", {"text": "ok"})).is_error
    denied = await call(tools, "echo", {"text": "a long speech"})
    assert denied.is_error
    assert denied.trusted
    assert denied.text.startswith("not allowed: the owner has turned this off")
    assert len(echo.calls) == 1
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["tool"], one["turn"], one["event"], one["outcome"]) for one in records] == [
        ("echo", "turn-1", "decided", "allowed"),
        ("echo", "turn-1", "decided", "denied"),
    ]


async def test_a_policy_that_crashes_means_no() -> None:
    class Broken(OwnersPolicy, frozen=True):
        def decide(self, caller: TurnContext, risk: Risk | None) -> Decision:
            raise KeyError(caller.scope)

    echo = Echo()
    assert (await call(registry(echo, policy=Broken()), "echo", {"text": "a"})).is_error
    assert echo.calls == []


async def test_secrets_are_redacted_in_results_and_in_errors() -> None:
    redactor = Redactor(["hunter22"])
    for echo in (
        Echo(),
        Echo(failure=ToolError("bad hunter22")),
        Echo(failure=OSError("hunter22")),
    ):
        result = await call(registry(echo, redactor=redactor), "echo", {"text": "pw hunter22"})
        assert "hunter22" not in result.text
    assert "hunter22" not in (await call(registry(redactor=redactor), "hunter22", {})).text


async def test_a_long_result_is_kept_redacted_and_previewed(tmp_path: Path) -> None:
    tools = registry(spill=SpillFolder(tmp_path / "spill"), redactor=Redactor(["hunter22"]))
    text = "first line\n" + "x" * 60_000 + " hunter22 last line"
    result = await call(tools, "echo", {"text": text})
    (kept,) = (tmp_path / "spill").iterdir()
    assert kept.read_text() == text.replace("hunter22", "[redacted]")
    assert len(result.text) <= MAX_RESULT
    assert result.text.startswith("first line\nxxx")
    assert result.text.endswith("last line")
    assert f"of {len(kept.read_text()):,} characters" in result.text
    assert f"read_file, path {kept}, start_line=2" in result.text
    assert not (await call(tools, "echo", {"text": "x" * MAX_RESULT})).text.count("left out")


async def test_a_long_result_is_previewed_where_it_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "spill").touch()
    for spill in (None, SpillFolder(tmp_path / "spill")):
        result = await call(registry(spill=spill), "echo", {"text": "x" * 50_000})
        assert not result.is_error
        assert "was not saved" in result.text
        assert len(result.text) <= MAX_RESULT


async def test_broken_characters_in_a_result_cannot_spoil_the_next_request() -> None:
    result = await call(registry(), "echo", '{"text": "caf\\udce9.txt"}')
    assert result.text == "caf\\udce9.txt"


def test_schemas_carry_what_a_model_needs_and_nothing_else() -> None:
    [spec, ping] = registry().specs()
    assert (spec.name, spec.description) == ("echo", "Say it.")
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to say."},
            "times": {"type": "integer"},
            "mode": {"type": "string", "enum": ["loud", "quiet"], "default": "quiet"},
            "limit": {"type": "integer", "minimum": 2, "maximum": 9},
            "title": {"type": "string"},
            "place": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "zip": {"type": "string"}},
                "required": ["city"],
            },
        },
        "required": ["text"],
    }
    assert ping.parameters == {"type": "object", "properties": {}}


def test_the_runner_learns_what_has_effects() -> None:
    tools = registry()
    assert tools.has_effects("ping")
    assert not tools.has_effects("echo")
    assert not tools.has_effects("nope")


def test_tools_that_cannot_be_offered_are_refused_at_registration() -> None:
    tools = registry()
    for wrong in (Echo(), Echo(name="no spaces"), Echo(name="")):
        with pytest.raises(ValueError, match=r"named|name"):
            tools.register(wrong)
