"""Our packages are never installed by name from a package index, where the name may be a
stranger's.

Real environments, Makefile and pip, and an index on loopback that serves hostile packages under our
names and counts the requests. Its pages have the form of PEP 503. Other packages are empty, except
the build backend of these tests."""

from __future__ import annotations

import ast
import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from threading import Thread

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nanobot.origin import DISTRIBUTION, how_to_install

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OURS = {"nanobot", DISTRIBUTION}
SOURCES = (
    *("pyproject.toml", "README.md", "LICENSE", "Makefile", "config.example.yaml"),
    *("nanobot", "channels", "scripts", "workspace"),
)
TEXTS = (
    *("*.md", "docs/**/*.md", "Makefile", "Dockerfile", "deploy/*", ".ci/*", "scripts/**/*.py"),
    *("nanobot/**/*.py", "nanobot/**/*.md", "channels/**/*.py", "channels/**/*.html"),
    *("workspace/**/*.md", "bench/**/*.py"),
)
INSTALLERS = r"\b(?:pip3?|pipx|uvx?|poetry|pdm|conda)\b"
NAME = r"nanobot(?:[-_.]daemon)?"
BY_NAME = re.compile(
    rf"{INSTALLERS}(?:(?!uninstall)[^\n`])*?[ '\"=]{NAME}(?=[\s'\"`,;:)\[=<>~!]|$)(?! *@)"
)
EXTRA_BY_NAME = re.compile(rf"(?<![/\w.-]){NAME}\[[\w,.-]+\](?! @ )")


def requirements() -> dict[str, list[Requirement]]:
    """Return all requirements in pyproject.toml, by list."""
    project = PROJECT["project"]
    lists: dict[str, list[str]] = {
        "build-system": PROJECT["build-system"]["requires"],
        "dependencies": project["dependencies"],
        **project["optional-dependencies"],
        **PROJECT.get("dependency-groups", {}),
    }
    return {name: [Requirement(line) for line in lines] for name, lines in lists.items()}


def wheel(name: str, version: str, files: Mapping[str, bytes]) -> bytes:
    """Return a wheel with these files."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    kept = {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{folder}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{folder}/RECORD": b"",
        **files,
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, content in kept.items():
            archive.writestr(path, content)
    return packed.getvalue()


def with_dependencies(name: str) -> set[str]:
    """Return the installed packages that a package needs, itself included."""
    needed = [Requirement(line) for line in distribution(name).requires or ()]
    below = [one.name for one in needed if one.marker is None or one.marker.evaluate()]
    return {canonicalize_name(name)}.union(*map(with_dependencies, below))


def repack(name: str) -> tuple[str, bytes]:
    """Return the version of an installed pure package, and a wheel of it."""
    found = distribution(name)
    files = {
        str(file): Path(str(file.locate())).read_bytes()
        for file in found.files or ()
        if file.parts[0] != ".." and file.name not in {"INSTALLER", "REQUESTED"}
        if "__pycache__" not in file.parts
    }
    return found.version, wheel(name, found.version, files)


class Index(ThreadingHTTPServer):
    """A package index that records the requested names in `asked`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked: list[str] = []
        least: dict[str, str] = {
            canonicalize_name(one.name): next(
                (part.version for part in one.specifier if part.operator in {">=", "=="}), "1.0"
            )
            for listed in requirements().values()
            for one in listed
        }
        self.packages: dict[str, tuple[str, bytes]] = {
            name: (version, wheel(name, version, {})) for name, version in least.items()
        }
        self.packages |= {name: repack(name) for name in with_dependencies("hatchling")}
        self.packages["editables"] = ("0.5", wheel("editables", "0.5", {}))  # asked for, not used
        hostile = {"hostile.pth": b"import sys; sys.hostile = True\n"}
        self.packages |= {name: ("99.0", wheel(name, "99.0", hostile)) for name in OURS}

    @property
    def address(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        """Serve a package's page, or its file."""
        kind, name = self.path.partition("?")[0].strip("/").split("/", 1)
        name = canonicalize_name(name.partition("/")[0])
        if kind == "simple":
            self.server.asked.append(name)
        found = self.server.packages.get(name)
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html" if kind == "simple" else "application/zip")
        self.end_headers()
        if found and kind == "simple":
            file = f"{name.replace('-', '_')}-{found[0]}-py3-none-any.whl"
            self.wfile.write(f'<a href="/file/{name}/{file}">{file}</a>'.encode())
        elif found:
            self.wfile.write(found[1])

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with Index() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nanobot's sources, and a space in its name."""
    folder = tmp_path_factory.mktemp("a clone")
    ignored = shutil.ignore_patterns("node_modules", "dist", "__pycache__")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def run(command: str, folder: Path, index: Index) -> str:
    """Return the output of a shell command. pip knows only this index."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    environ = {
        **kept,
        "HOME": str(folder),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_INDEX_URL": f"{index.address}/simple/",
        "PIP_NO_CACHE_DIR": "1",
    }
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environ,
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def hint_in(python: str, extra: str, folder: Path, index: Index) -> str:
    """Return the command that this nanobot names for an extra."""
    ask = f"from nanobot.origin import how_to_install as ask; print(ask({extra!r}))"
    said = run(f'{python} -I -c "{ask}"', folder, index).strip()
    assert said.startswith("Install it: "), said
    return said.removeprefix("Install it: ")


def is_ours(python: str, folder: Path, index: Index) -> bool:
    """Check whether the environment has this nanobot, and nothing of the hostile index."""
    look = (
        "import sys, importlib.metadata as m; "
        f"print(m.version({DISTRIBUTION!r}), hasattr(sys, 'hostile'))"
    )
    return run(f'{python} -I -c "{look}"', folder, index) == "0.1.0 False\n"


def test_make_asks_no_index_for_nanobot(clone: Path, index: Index) -> None:
    index.asked.clear()
    said = run(f"make .venv/.installed PYTHON={sys.executable} 2>&1", clone, index).splitlines()
    waits = ("Setting up", "Installing nanobot", "  looking", "  10 packages", "  installing ")
    shown = [next((wait for wait in waits if line.startswith(wait)), "") for line in said]
    assert [wait for wait in shown if wait] == [*waits], "a line before each wait, in their order"
    assert {"aiohttp", "pypdf"} <= {*index.asked}
    assert "psycopg" not in index.asked
    python = "'" + str(clone / ".venv" / "bin" / "python") + "'"
    hint = hint_in(python, "team", clone, index)
    assert hint == f"make -C '{clone}' extra NAME=team"
    run(hint, clone.parent, index)
    assert "psycopg" in index.asked
    run("make .venv/.dev", clone, index)
    assert "pytest" in index.asked
    assert not OURS & {*index.asked}
    assert is_ours(python, clone, index)


def test_elsewhere_the_hint_is_words_and_no_command() -> None:
    elsewhere = "import sys; sys.prefix = '/nowhere'\n"
    ask = "from nanobot.origin import how_to_install; print(how_to_install('pdf'))"
    done = subprocess.run(
        [sys.executable, "-c", elsewhere + ask],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "from its clone or archive" in done.stdout
    assert "install '" not in done.stdout
    assert how_to_install("pdf").startswith("Install it: ")


def test_the_project_file_names_no_package_of_ours_and_make_knows_its_extras() -> None:
    lists = requirements()
    assert PROJECT["project"]["name"] == DISTRIBUTION
    assert not OURS & {canonicalize_name(one.name) for listed in lists.values() for one in listed}
    parts = [
        str(one)
        for extra in ("backup-encryption", "highlight", "math", "metrics", "pdf")
        for one in lists[extra]
    ]
    assert sorted(map(str, lists["standard"])) == sorted(parts)
    assert {*parts, *map(str, [*lists["mcp"], *lists["team"]])} <= {*map(str, lists["dev"])}
    (listed,) = re.findall(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert listed.split() == sorted(PROJECT["project"]["optional-dependencies"].keys() - {"dev"})


BAD = (
    "pip install 'nanobot[team]'",
    "pip install nanobot-daemon",
    "python -m pip install --upgrade nanobot",
    "pipx upgrade nanobot",
    "uvx nanobot",
    "uv tool install nanobot-daemon==1",
    "Run `pip install nanobot`.",
    "- **The extra**: 'nanobot[team]' brings it",
    'steps = ("pipx", "upgrade", "nanobot")',
    'command = [sys.executable, "-m", "pip", "install", "nanobot-daemon[team]"]',
)


@pytest.mark.parametrize("text", BAD)
def test_an_installation_by_name_is_recognised(text: str) -> None:
    assert find_named(text)


def find_named(text: str) -> list[str]:
    """Return the parts of a text that install one of our packages by its name."""
    return [match[0] for pattern in (BY_NAME, EXTRA_BY_NAME) for match in pattern.finditer(text)]


def test_no_text_and_no_argument_list_installs_nanobot_by_name() -> None:
    files = {path for pattern in TEXTS for path in ROOT.glob(pattern) if path.is_file()}
    files = {path for path in files if "node_modules" not in path.parts}
    assert len(files) > 400
    found = {}
    for path in files:
        text = path.read_text(errors="replace")
        if path.suffix == ".py":
            text += "\n".join(arguments(text))
        if bad := find_named(text):
            found[str(path.relative_to(ROOT))] = bad
    assert found == {}


def arguments(source: str) -> Iterator[str]:
    """Return the words of each list, tuple and call of a program, a line each, in any layout."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.List | ast.Tuple | ast.Call):
            items = node.args if isinstance(node, ast.Call) else node.elts
            words = [str(one.value) for one in items if isinstance(one, ast.Constant)]
            yield " ".join(word for word in words if not re.search(r"\s", word))
