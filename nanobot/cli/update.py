"""`nanobot update`: how this installation is brought up to date, and doing it.

    nanobot update --check     how it is installed, and what a clone's origin has that is new
    nanobot update             shows the steps, asks, and takes them

Steps: a backup, the new version, a restart of the services that run. Invariants: nothing happens
without a yes; the first step that fails ends it, and says what has been done and the way back. A
clone with changes of one's own is left alone, and is only ever moved forward.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import nanobot
from nanobot.cli.command import Commands, Options, indent, print_text, shared_folder
from nanobot.cli.service import Systemd, answer_of
from nanobot.cli.unit import services_of
from nanobot.errors import NanobotError

if TYPE_CHECKING:
    from nanobot.cli.service import Answer


Kind = Literal["clone", "pip", "pipx", "image"]

_DESCRIPTIONS: Mapping[Kind, str] = {
    "clone": "a clone, which `make run` installs",
    "pip": "a package that pip installed",
    "pipx": "a package that pipx installed",
    "image": "an image of a container",
}
_SECONDS = 1_800.0
"""What one step may take: an installation fetches some fifty packages."""
_MOST_SUBJECTS = 20
_IMAGE = (
    "A container has the version of its image. Outside of it, in the clone:\n"
    "  git pull\n  docker build -t nanobot .\n"
    "  docker compose -f deploy/compose.yaml up -d --build    (with Compose)\n"
    "docs/docker.md says more. Make a backup first: `nanobot backup`.\n"
)


class Installation(NamedTuple):
    """How this nanobot was installed. `source` is the clone that it is from, None where it is from
    elsewhere; `origin` what pip takes then. `editable`: what runs is the clone itself."""

    kind: Kind
    source: Path | None = None
    origin: str = "nanobot"
    editable: bool = False

    def steps(self) -> tuple[tuple[str, ...], ...]:
        """The commands that bring it up to date; none for what is not done from within."""
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install")
        way = ("--editable",) if self.editable else ()
        new = (*way, f"{self.source}[standard]") if self.source else ("--upgrade", self.origin)
        installing: Mapping[Kind, tuple[str, ...]] = {
            "clone": ("make", "-C", str(self.source), ".venv/.installed"),
            "pip": (*pip, *new),
            "pipx": ("pipx", "upgrade", "nanobot"),
        }
        pull = (("git", "-C", str(self.source), "pull", "--ff-only"),) if self.source else ()
        return (*pull, installing[self.kind]) if self.kind in installing else ()

    def removal(self) -> str:
        """How the program is removed, for people."""
        return {
            "clone": f"rm -r {shlex.quote(str(self.source))}",
            "pip": f"{shlex.quote(sys.executable)} -m pip uninstall nanobot",
            "pipx": "pipx uninstall nanobot",
            "image": "docker rm and docker image rm, outside",
        }[self.kind]


def find_installation(
    package: Path = Path(nanobot.__file__).parent,
    prefix: Path = Path(sys.prefix),
    direct_url: str | None = None,
    container_marks: Sequence[str] = ("/.dockerenv", "/run/.containerenv"),
) -> Installation:
    """How the nanobot that runs was installed. `direct_url` is what the installer wrote down of
    where it had it from (PEP 610); None: what is known of this one."""
    root = package.parent
    if (root / ".git").exists() and (root / "pyproject.toml").exists():
        kind: Kind = "clone" if prefix == root / ".venv" else "pip"
        return Installation(kind, root, editable=True)
    if any(Path(mark).exists() for mark in container_marks):
        return Installation("image")
    if direct_url is None:
        with suppress(PackageNotFoundError):
            direct_url = distribution("nanobot").read_text("direct_url.json")
    source, origin = _origin(direct_url or "{}")
    is_pipx = (prefix / "pipx_metadata.json").exists()
    return Installation("pipx" if is_pipx else "pip", source, origin)


def _origin(direct_url: str) -> tuple[Path | None, str]:
    """The clone, or what pip is to be told."""
    said = json.loads(direct_url)
    url = str(said.get("url", ""))
    if url.startswith("file://"):
        folder = Path(url.removeprefix("file://"))
        return (folder if (folder / ".git").exists() else None), "nanobot"
    if url and "vcs_info" in said:
        return None, f"nanobot[standard] @ git+{url}"
    return None, "nanobot"


def add_update(commands: Commands) -> None:
    """`nanobot update`."""
    update = commands.add("update", "bring nanobot up to date, once you have seen how", _update)
    update.flag("--check", "say how, and what is new; change nothing")
    update.flag("--no-backup", "make no backup first")
    update.yes().json()


def _update(options: Options) -> int:
    return bring_up_to_date(options, find_installation())


def bring_up_to_date(options: Options, found: Installation) -> int:
    """Show the steps, ask and take them; exit code 1 where the answer was no. Raises
    `NanobotError` where a step failed."""
    news = _news(found.source) if found.source else ()
    steps = _steps(options, found)
    data = {
        "version": nanobot.__version__,
        "installed_as": found.kind,
        "source": str(found.source) if found.source else None,
        "new": None if news is None else list(news),
        "steps": [shlex.join(step) for step in steps],
    }
    shown = _shown(found, steps, news)
    if options.check or not steps:
        return options.print_either(data, lambda: shown)
    if found.source:
        _expect_clean(found.source)
    if not options.ask_consent(shown, "\nDo this?"):
        return 1
    before = _git(found.source, "rev-parse", "HEAD").stdout.strip() if found.source else ""
    for number, step in enumerate(steps):
        if not options.json:
            print_text(f"\n$ {shlex.join(step)}\n")
        if code := _run(step, quiet=options.json):
            done = (
                "the steps before it are done" if number else "nothing before it changed anything"
            )
            said = f"`{shlex.join(step)}` failed (exit code {code}); {done}"
            raise NanobotError(said, hint=_way_back(found, before))
    return options.print_either(data, lambda: _done(options.home, steps))


def _steps(options: Options, found: Installation) -> list[tuple[str, ...]]:
    """All that would be done, in order."""
    if not (own := found.steps()):
        return []
    backup = (sys.executable, "-m", "nanobot", "--home", str(options.home), "backup")
    wants_backup = not options.no_backup and (options.home / "state").is_dir()
    wants_backup = wants_backup and shared_folder(options.home) == options.home
    return [*([backup] if wants_backup else []), *own, *_restarts(options.home)]


def _restarts(home: Path) -> list[tuple[str, ...]]:
    """The restart of each service of the home that runs."""
    machine = ("systemctl",) if os.geteuid() == 0 else ("sudo", "systemctl")
    return [
        (*(machine if place.system else ("systemctl", "--user")), "restart", place.unit)
        for place in services_of(home)
        if Systemd(place).facts().get("ActiveState") == "active"
    ]


def _done(home: Path, steps: Sequence[Sequence[str]]) -> str:
    """With what is left to do for a gateway that no service runs."""
    from nanobot.cli.status import of_gateway

    left = "The gateway that runs is the old one: `nanobot agent -m /restart` starts the new. "
    is_new = any("restart" in step for step in steps) or of_gateway(home) is None
    return f"\nDone. {'' if is_new else left}`nanobot doctor` says how it is.\n"


def _news(source: Path) -> Sequence[str] | None:
    """The subjects of what the clone's origin has that it lacks, the newest first; None where that
    cannot be found out."""
    if _git(source, "fetch", "--quiet").returncode:
        return None
    log = _git(source, "log", "--format=%s", "HEAD..@{upstream}")
    return None if log.returncode else log.stdout.splitlines()


def _shown(found: Installation, steps: Sequence[Sequence[str]], news: Sequence[str] | None) -> str:
    """How it is installed, what is new, and what is to be done about it."""
    where = f" ({found.source})" if found.source else ""
    shown = f"nanobot {nanobot.__version__}, {_DESCRIPTIONS[found.kind]}{where}.\n"
    if news is None:
        shown += "What is new could not be found out: `git fetch` there says why.\n"
    elif news:
        more = len(news) - _MOST_SUBJECTS
        listed = [*news[:_MOST_SUBJECTS], *([f"… and {more} more"] if more > 0 else [])]
        shown += f"{len(news)} changes are new:\n" + indent("\n".join(listed))
    elif found.source:
        shown += "There is nothing new.\n"
    return shown + ("To update:\n" + indent("\n".join(map(shlex.join, steps))) if steps else _IMAGE)


def _expect_clean(source: Path) -> None:
    changed = _git(source, "status", "--porcelain", "--untracked-files=no").stdout.strip()
    if changed:
        raise NanobotError(
            f"{source} has changes of your own; nothing was changed",
            hint="`git stash` there puts them aside, `git stash pop` brings them back.",
        )


def _way_back(found: Installation, before: str) -> str:
    if not before or not found.source:
        return "Mend that, and run it again; docs/upgrade.md says how to go back."
    back = f"`git -C {shlex.quote(str(found.source))} reset --hard {before[:12]}`"
    return f"Mend that and run it again, or go back with {back} and the last step once more."


def _git(source: Path, *words: str) -> Answer:
    return answer_of("git", "-C", str(source), *words, GIT_TERMINAL_PROMPT="0")


def _run(step: Sequence[str], *, quiet: bool) -> int:
    """Take a step where the person sees it; its exit code."""
    import subprocess

    out = sys.stderr if quiet else None
    try:
        done = subprocess.run(  # noqa: S603 - our words, and no shell
            step, stdin=subprocess.DEVNULL, stdout=out, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print_text(f"{error}\n", sys.stderr)
        return 1
    return done.returncode
