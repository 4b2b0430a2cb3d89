"""Settings that work but should be fixed."""

from __future__ import annotations

import os
import stat

import pytest

from nanobot.app.base import make_home
from tests.config.homes import Home

LITERAL = "model:\n  name: m\n  api_key: sk-canary\n"


def test_a_key_written_out_in_a_file_that_others_read_is_a_warning(home: Home) -> None:
    home.write(LITERAL, mode=0o644)
    assert home.load().warnings == (
        f"{home.config}:3: model.api_key: is in a file that other users can read. "
        f"Run `chmod 600 {home.config}`.",
    )


def test_so_is_the_key_of_a_fallback(home: Home) -> None:
    home.write(
        "model:\n  name: m\n  api_key: ${K}\n  fallbacks:\n    - name: f\n      api_key: sk-2\n",
        mode=0o640,
    )
    (warning,) = home.load({"K": "k"}).warnings
    assert warning.startswith(
        f"{home.config}:6: model.fallbacks[0].api_key: is in a file that other users can read"
    )


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (LITERAL, 0o600),
        ("model: {name: m, api_key: '${K}'}\n", 0o644),
        ("model: {api_key: ''}\n", 0o644),
        ("log: {level: info}\n", 0o644),
    ],
)
def test_no_warning_without_a_reason(home: Home, text: str, mode: int) -> None:
    home.write(text, mode=mode)
    home.write_secrets("K=k\n")
    assert home.load().warnings == ()


def test_secrets_that_others_read_are_a_warning(home: Home) -> None:
    home.write_secrets("K=k\n", mode=0o604)
    assert home.load().warnings == (
        f"{home.secrets}: contains secrets that other users can read. "
        f"Run `chmod 600 {home.secrets}`.",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize("name", ["config.yaml", "secrets.env"])
def test_a_file_of_another_user_is_not_used(home: Home, name: str) -> None:
    home.write("log: {level: info}\n")
    home.write_secrets("K=k\n")
    os.chown(home.folder / name, 4_242, -1)
    complaint = home.complaint()
    assert f"HOME/{name}: belongs to user 4242, who can change it at any time\n" in complaint
    assert f"sudo chown {os.geteuid()}" in complaint
    os.chown(home.folder, 4_242, -1)  # it is their home, which root looks at
    assert home.load().warnings == ()


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o606])
def test_files_with_keys_are_closed_to_others_at_the_next_start(home: Home, mode: int) -> None:
    home.write(LITERAL, mode=mode)
    home.write_secrets("K=k\n", mode=mode)
    assert make_home(home.folder) == [home.secrets, home.config]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (home.config, home.secrets)]
    assert modes == [0o600, 0o600]
    assert home.load().warnings == ()
    assert make_home(home.folder) == []
