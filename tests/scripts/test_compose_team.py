"""The team configuration in deploy/ and docs/team.md is valid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nanobot.config.load import load_settings

ROOT = Path(__file__).parents[2]
_CHOSEN = re.compile(r"\$\{(\w+):\?[^}]*\}")


@pytest.fixture
def services() -> dict[str, Any]:
    """The services of the file, with a password."""
    text = (ROOT / "deploy" / "compose.team.yaml").read_text()
    chosen = {"TEAM_TIMEZONE": "Europe/Berlin"}
    text = _CHOSEN.sub(lambda name: chosen.get(name[1], "secret"), text)
    services: dict[str, Any] = yaml.safe_load(text)["services"]
    return services


def test_each_worker_has_a_home_of_its_own_and_all_share_folder_and_database(
    services: dict[str, Any], tmp_path: Path
) -> None:
    workers = [services["worker1"], services["worker2"]]
    loaded = [load_settings(tmp_path, one["environment"]) for one in workers]
    assert [one.team.name for one in loaded] == ["worker1", "worker2"]
    assert {one.team.database.get_secret_value() for one in loaded} == {
        "postgresql://nanobot:secret@postgres/nanobot"
    }
    assert {one.http.host for one in loaded} == {"0.0.0.0"}
    homes, shared = zip(*(one["volumes"] for one in workers), strict=True)
    assert len(set(homes)) == 2
    assert set(shared) == {f"shared:{loaded[0].team.shared}"}
    for one in workers:
        assert one["restart"] == "always", "a fenced worker ends, and comes back"
        assert one["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert services["postgres"]["healthcheck"]["test"][1] == "pg_isready"


def test_the_balancer_knows_the_workers(services: dict[str, Any]) -> None:
    text = (ROOT / "deploy" / "balancer.conf").read_text()
    known = re.findall(r"server (\w+):8087 ", text)
    assert known == [name for name in services if name.startswith("worker")]
    assert services["balancer"]["volumes"] == ["./balancer.conf:/etc/nginx/conf.d/default.conf:ro"]


def test_the_configuration_of_the_page_loads(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "team.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    config, secrets = (dict(reversed(blocks))[kind] for kind in ("yaml", ""))
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "secrets.env").write_text(secrets)
    (tmp_path / "secrets.env").chmod(0o600)
    settings = load_settings(tmp_path, {})
    assert settings.team.name == "mill"
    assert settings.team.database.get_secret_value().endswith("@db.example.org/nanobot")
