"""The short version of the fault campaign with WhatsApp: real processes, really killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot_whatsapp.linked.install import SOURCES, NodeMissing, bridge_program, find_node
from tests.bench.campaigns import needs_a_compiler, short

pytestmark = pytest.mark.campaign


@needs_a_compiler
def test_killed_with_its_helper_between_whatsapp_and_the_agent_every_message_is_answered_in_order(
    tmp_path: Path,
) -> None:
    try:
        find_node("node")
    except NodeMissing as error:
        pytest.skip(str(error))
    if bridge_program(tmp_path) is None or not (SOURCES / "node_modules" / "ws").is_dir():
        pytest.skip(f"the helper is not built in {SOURCES} (npm ci; npm run build)")
    figures = short("bench.crash_whatsapp", tmp_path)
    assert figures["failures"] == []
    assert figures["kills at a handful of calls"] == 1
