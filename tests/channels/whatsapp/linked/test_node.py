"""Finding Node.js."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot_whatsapp.linked.install import NodeMissing, find_node
from tests.channels.whatsapp.linked.programs import node_and_npm, program


def test_a_node_that_is_named_by_its_path_or_is_on_the_path_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_and_npm(tmp_path / "bin")
    assert find_node(str(node)) == node
    monkeypatch.setenv("PATH", str(node.parent))
    assert find_node("node") == node


@pytest.mark.parametrize("setting", ["node", "/nowhere/node"])
def test_a_missing_node_is_said_with_the_fix(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NodeMissing, match=r"needs Node\.js") as missing:
        find_node(setting)
    assert "20 or newer" in missing.value.hint
    assert "channels.whatsapp.node" in missing.value.hint


def test_a_node_in_the_folder_of_an_unknown_user_is_said() -> None:
    with pytest.raises(NodeMissing, match="user in '~nosuch/node' is unknown"):
        find_node("~nosuch/node")


def test_a_node_that_is_too_old_says_which_version_it_is(tmp_path: Path) -> None:
    node = node_and_npm(tmp_path, version="v18.20.4")
    with pytest.raises(NodeMissing, match=r"20 or newer, but .* is version .v18\.20\.4."):
        find_node(str(node))


@pytest.mark.parametrize("script", ["echo hello", "echo v22.1.0; exit 1", "echo v22.1.0 and more"])
def test_a_program_that_is_no_node_is_not_used(script: str, tmp_path: Path) -> None:
    with pytest.raises(NodeMissing, match="needs Node"):
        find_node(str(program(tmp_path / "node", script)))
