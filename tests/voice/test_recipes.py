"""The recipes of docs/voice.md: settings that load, and installed engines that speak and
transcribe."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from nanobot.app.voice import Voice
from nanobot.clock import SystemClock
from nanobot.config.load import load_settings
from nanobot.config.settings import Settings
from nanobot.voice.engines import ProgramTranscriber
from nanobot.voice.programs import Program, Programs
from nanobot.voice.sound import opus_seconds
from tests.support import write_config

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "voice.md").read_text()
RECIPES: Sequence[Mapping[str, Any]] = [
    yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
]
SCRIPTS: Sequence[str] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

SPHINX = ROOT / ".speech" / "bin" / "python"
"""Path of PocketSphinx in CI."""

speaks = pytest.mark.skipif(
    not (shutil.which("espeak-ng") and shutil.which("opusenc")),
    reason="espeak-ng or opus-tools is not installed",
)
hears = pytest.mark.skipif(not SPHINX.exists(), reason=f"PocketSphinx is not in {SPHINX}")


def settings_of(home: Path, recipe: Mapping[str, Any]) -> Settings:
    write_config(home, recipe)
    return load_settings(home, {"OPENAI_API_KEY": "sk-test"})


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_a_recipe_is_a_configuration(tmp_path: Path, recipe: Mapping[str, Any]) -> None:
    model = settings_of(tmp_path, recipe).model
    assert model.transcription.is_on or model.speech.is_on


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.split()[-1])
def test_a_script_is_python(script: str) -> None:
    compile(script, "docs/voice.md", "exec")


@speaks
@pytest.mark.parametrize("recipe", [one for one in RECIPES if "espeak-ng" in str(one)], ids=str)
async def test_espeak_speaks_as_the_page_says(disk_path: Path, recipe: Mapping[str, Any]) -> None:
    speech = Voice(settings_of(disk_path / "home", recipe), SystemClock()).speech
    assert speech is not None
    sound = await speech.say(speech.words("**Good morning**, and a nice day."))
    assert 1.0 < opus_seconds(sound) < 6.0


@speaks
@hears
async def test_what_espeak_says_is_heard(disk_path: Path, programs: Programs) -> None:
    (script,) = [one for one in SCRIPTS if "pocketsphinx" in one]
    listening = disk_path / "sphinx.py"
    listening.write_text(script)
    recipe = {"model": {"speech": {"command": ["espeak-ng", "-s", "140", "-w", "{output}"]}}}
    speech = Voice(settings_of(disk_path / "home", recipe), SystemClock()).speech
    assert speech is not None
    sound = await speech.say("Please remind me to buy milk tomorrow morning.")
    program = Program((str(SPHINX), str(listening), "{wav}"))
    ears = ProgramTranscriber(programs, program, max_bytes=10**7)
    heard = await ears.transcribe(sound, "audio/ogg", "voice.oga")
    assert "remind me" in heard
    assert "tomorrow morning" in heard
