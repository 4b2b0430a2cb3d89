"""Measure nanobot's disk usage: the packages that pip installs, and the size of each.

    python -m bench.install [FOLDER] [--plain]    sources in FOLDER (default: these)

`pip install .` runs in a new virtual environment, then, without `--plain`, `pip install
'.[standard]'` in another one.
`site-packages` is counted in MiB of disk blocks, as `du` does, with the bytecode that pip makes,
and without pip and setuptools, which are part of the environment. Packages are distributions,
nanobot included."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from bench.reporting import report

ROOT = Path(__file__).parents[1]
TOOLS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
LARGEST = 8
WANTED = {"": (" (target <= 125)", " (target <= 46)"), "[standard]": ("", "")}
HTTP_CLIENTS = {"aiohttp", "httpx", "httpx2", "niquests", "requests"}


def blocks(path: Path) -> int:
    """Return the bytes of disk blocks of `path` and everything below it."""
    below = path.rglob("*") if path.is_dir() else ()
    return sum(each.lstat().st_blocks * 512 for each in (path, *below))


def install_into(folder: Path, source: str) -> tuple[dict[str, int], set[str]]:
    """Install `source`, and return the bytes of each entry of `site-packages` and the packages."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    command: list[str | Path] = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "--quiet",
        "install",
        source,
    ]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    (packages,) = folder.glob("lib/python*/site-packages")
    entries = {
        each.name: blocks(each) for each in packages.iterdir() if not each.name.startswith(TOOLS)
    }
    names = {each.metadata["Name"] for each in distributions(path=[str(packages)])}
    return entries, names - {*TOOLS}


def main() -> None:
    folders = [Path(each) for each in sys.argv[1:] if not each.startswith("--")]
    source = folders[0] if folders else ROOT
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    figures: dict[str, object] = {}
    for extra, (size_wanted, count_wanted) in WANTED.items():
        known = extra[1:-1] in project["optional-dependencies"] and "--plain" not in sys.argv
        if extra and not known:
            continue
        with tempfile.TemporaryDirectory() as folder:
            entries, names = install_into(Path(folder), f"{source.resolve()}{extra}")
        figures[f"nanobot{extra} [MiB]{size_wanted}"] = sum(entries.values()) / 2**20
        figures[f"nanobot{extra}, packages{count_wanted}"] = len(names)
        if not extra:
            figures["HTTP clients"] = ", ".join(sorted(HTTP_CLIENTS & names))
            largest = sorted(entries.items(), key=lambda entry: -entry[1])[:LARGEST]
            figures |= {f"  {name} [MiB]": size / 2**20 for name, size in largest}
    report("install", figures)


if __name__ == "__main__":
    main()
