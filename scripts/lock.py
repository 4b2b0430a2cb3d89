"""Writes the versions that the Docker image is made of, so that it is made of the same tomorrow.

    python -m scripts.lock

asks pip what it would install today for `pyproject.toml` and the extra `mcp`, and writes
`deploy/requirements.txt`. A package that only older Pythons need may stand there as well, and does
no harm; that none is missing, `pip check` says while the image is built.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "deploy" / "requirements.txt"
PYTHON = "3.13"
"""The Python of the Debian release that the image begins with."""

_HEADER = f"""\
# What the Docker image has, for Python {PYTHON}; written by `python -m scripts.lock`.
"""


def wanted(pyproject: Path = ROOT / "pyproject.toml") -> list[str]:
    """The requirements of nanobot with all that the image can do."""
    project = tomllib.loads(pyproject.read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["mcp"]]


def resolved(requirements: Sequence[str]) -> dict[str, str]:
    """Each package that pip would install for them, with its version."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"),
                *("--ignore-installed", "--only-binary", ":all:", "--python-version", PYTHON),
                *("--target", folder, "--report", str(report), *requirements),
            ],
            check=True,
        )
        chosen = [one["metadata"] for one in json.loads(report.read_text())["install"]]
    return {one["name"].lower().replace("_", "-"): one["version"] for one in chosen}


def main() -> None:
    """Write the file."""
    lines = [f"{name}=={version}\n" for name, version in sorted(resolved(wanted()).items())]
    LOCK.write_text(_HEADER + "".join(lines))
    print(f"{LOCK.relative_to(ROOT)}: {len(lines)} packages", file=sys.stderr)


if __name__ == "__main__":
    main()
