"""The installed package is complete, and contains no other build results."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[1]
BRIDGE = "nanobot_whatsapp/bridge"
NEEDED = {
    "nanobot/config.example.yaml",
    "nanobot/workspace_template/AGENTS.md",
    f"{BRIDGE}/.npmrc",
    f"{BRIDGE}/package-lock.json",
    f"{BRIDGE}/package.json",
    f"{BRIDGE}/src/main.ts",
    f"{BRIDGE}/tsconfig.build.json",
}


def test_the_packages_hold_the_sources_of_the_whatsapp_helper_and_nothing_built(
    tmp_path: Path,
) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        installed = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    with tarfile.open(sdist) as archive:
        shipped = {name.partition("/")[2] for name in archive.getnames()}
    assert installed >= NEEDED
    assert {f"channels/{BRIDGE}/src/main.ts", f"channels/{BRIDGE}/test/trust.mjs"} <= shipped
    assert not any(f"{BRIDGE}/test" in name for name in installed)
    built = ("/node_modules/", "/dist/", "__pycache__")
    assert not [name for name in installed | shipped if any(part in name for part in built)]
    example = [sys.executable, "-m", "nanobot", "config", "example"]
    environ = {"PYTHONPATH": str(tmp_path / "installed"), "HOME": str(tmp_path)}
    done = subprocess.run(example, cwd=tmp_path, env=environ, check=True, capture_output=True)
    assert done.stdout == (ROOT / "config.example.yaml").read_bytes()
