"""Write the versions in the Docker image, so that the image can be reproduced.

    python -m scripts.lock

asks pip which packages it would install today for `pyproject.toml` and its extras (without
`embeddings`, which is larger than all others together), and writes `deploy/requirements.txt`, with
the hash of each file for each of `MACHINES`. The file may contain a package that only older Pythons
need, which is harmless. `pip check` detects missing ones while the image is built."""

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
"""The Python of the Debian release in the image."""

MACHINES = ("x86_64", "aarch64")
GLIBC = 41
"""The minor version of its C library."""

_HEADER = f"""\
# What the Docker image has, for Python {PYTHON}; written by `python -m scripts.lock`.
"""


def read_requirements(pyproject: Path = ROOT / "pyproject.toml") -> list[str]:
    """Return the requirements of nanobot with all features of the image."""
    project = tomllib.loads(pyproject.read_text())["project"]
    extras = project["optional-dependencies"]
    alone = [name for name in extras if name not in {"dev", "embeddings", "standard"}]
    return [*project["dependencies"], *(line for name in alone for line in extras[name])]


def resolve(requirements: Sequence[str], machine: str) -> dict[str, tuple[str, str]]:
    """Return each package that pip would install on `machine`, with its version and the SHA-256 of
    its file."""
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC, 16, -1)]
    platforms += [f"manylinux2014_{machine}", f"linux_{machine}"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"),
                *("--ignore-installed", "--only-binary", ":all:", "--python-version", PYTHON),
                *(word for platform in platforms for word in ("--platform", platform)),
                *("--target", folder, "--report", str(report), *requirements),
            ],
            check=True,
        )
        chosen = json.loads(report.read_text())["install"]
    return {
        one["metadata"]["name"].lower().replace("_", "-"): (
            one["metadata"]["version"],
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in chosen
    }


def render(locks: Sequence[dict[str, tuple[str, str]]]) -> str:
    """Return the file's text. Raise `ValueError` if machines would get different versions."""
    lines = []
    for name in sorted({name for lock in locks for name in lock}):
        found = [lock[name] for lock in locks if name in lock]
        (version,) = {version for version, _ in found}
        hashes = sorted({digest for _, digest in found})
        lines.append(
            " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{h}" for h in hashes)])
        )
    return _HEADER + "\n".join(lines) + "\n"


def main() -> None:
    first = resolve(read_requirements(), MACHINES[0])
    exact = [f"{name}=={version}" for name, (version, _) in first.items()]
    text = render([first, *(resolve(exact, machine) for machine in MACHINES[1:])])
    LOCK.write_text(text)
    print(f"{LOCK.relative_to(ROOT)}: {len(first)} packages", file=sys.stderr)


if __name__ == "__main__":
    main()
