"""Each sandbox that works here. Without any the tests fail, because only one of two may be
missing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot.security.sandbox import FoundSandbox, Sandbox, find_sandbox
from tests.security.sandbox.folders import SandboxFolders


@pytest.fixture(scope="session")
def every_sandbox() -> dict[str, FoundSandbox]:
    found = {
        "bubblewrap": asyncio.run(find_sandbox("bubblewrap")),
        "landlock": asyncio.run(find_sandbox("landlock")),
    }
    problems = "; ".join(one.problem for one in found.values())
    assert any(one.sandbox for one in found.values()), problems
    return found


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest, every_sandbox: dict[str, FoundSandbox]) -> Sandbox:
    return working(every_sandbox[request.param])


@pytest.fixture
def bubblewrap(every_sandbox: dict[str, FoundSandbox]) -> Sandbox:
    return working(every_sandbox["bubblewrap"])


@pytest.fixture
def folders(disk_path: Path) -> SandboxFolders:
    return SandboxFolders(disk_path)


def working(found: FoundSandbox) -> Sandbox:
    """Return the sandbox, or skip the test."""
    if found.sandbox is None:
        pytest.skip(found.problem)
    return found.sandbox
