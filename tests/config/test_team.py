"""The section `team`: keys that belong together, and shared folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.config.load import load_settings
from nanobot.errors import ConfigError
from tests.support import write_config

_DATABASE = "postgresql://nanobot:canary@db.example.org/nanobot"


def test_a_team_has_a_database_and_a_folder(tmp_path: Path) -> None:
    home, shared = tmp_path / "home", tmp_path / "shared"
    team = {"database": "${NANOBOT_DATABASE}", "shared": str(shared)}
    write_config(home, {"agent": {"timezone": "UTC"}, "team": team})
    settings = load_settings(home, {"NANOBOT_DATABASE": _DATABASE})
    assert settings.team.database.get_secret_value() == _DATABASE
    assert settings.data_folder == shared
    assert settings.folders == (home, shared)
    assert "canary" not in repr(settings)


def test_alone_all_is_in_the_home(tmp_path: Path) -> None:
    write_config(tmp_path, {})
    settings = load_settings(tmp_path, {})
    assert (settings.data_folder, settings.folders) == (tmp_path, (tmp_path,))


def test_a_team_without_a_time_zone_is_refused(tmp_path: Path) -> None:
    write_config(tmp_path / "home", {"team": {"database": _DATABASE, "shared": "/srv/nanobot"}})
    with pytest.raises(ConfigError, match=r"agent\.timezone: is required in a team") as caught:
        load_settings(tmp_path / "home", {})
    assert "Europe/Berlin" in caught.value.for_people()


@pytest.mark.parametrize(
    ("team", "said"),
    [
        ({"database": _DATABASE}, "team.shared: is also required"),
        ({"shared": "/srv/nanobot"}, "team.database: is also required"),
        (
            {"database": "mysql://x", "shared": "/srv/nanobot"},
            "team.database: must be the URL of a PostgreSQL database",
        ),
        (
            {"database": _DATABASE, "shared": "srv"},
            "team.shared: must be an absolute path",
        ),
        (
            {"database": _DATABASE, "shared": "HOME/shared"},
            "team.shared: is this worker's home, or in it",
        ),
    ],
)
def test_half_a_team_is_refused(tmp_path: Path, team: dict[str, str], said: str) -> None:
    given = {name: value.replace("HOME", str(tmp_path)) for name, value in team.items()}
    write_config(tmp_path, {"team": given})
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path, {})
    assert said in str(caught.value)
    assert "canary" not in caught.value.for_people()
