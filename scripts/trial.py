"""Try nanobot like a new user, in a clean Debian root.

    sudo python -m scripts.trial [--as-it-stands]

The root has python3, python3-venv, make and git, and nothing else. The repository is cloned there,
and nanobot is run, set up, started and used by Telegram (with the fake servers of
`tests/doubles/`). Then a backup is made and restored into another home, where the conversation
continues. `systemd-analyze verify` checks the unit for systemd."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from scripts.clean_room.command_line import ROOT, parser_of, run_in_roots
from scripts.clean_room.machine import Machine, Program
from scripts.clean_room.roots import Roots
from scripts.clean_room.steps import StepFailed, Steps

RELEASE = "bookworm"
PACKAGES = ("python3", "python3-venv", "make", "git")
USER = "ada"
HOME = f"/home/{USER}"
CLONE = f"{HOME}/nanobot"
NANOBOT = f"{CLONE}/.venv/bin/nanobot"
PYTHON = f"{CLONE}/.venv/bin/python"
BACKUP = f"{HOME}/nanobot-backup.tar.gz"
ELSEWHERE = f"{HOME}/restored"
OWNER = "7"
"""The person's id at the fake Telegram."""

_BLUE = "my favourite colour is blue, remember that\nwhat is my favourite colour?\n"


class Trial:
    """A new user's machine and steps."""

    def __init__(self, roots: Roots, steps: Steps, *, as_it_stands: bool) -> None:
        self._steps, self._as_it_stands = steps, as_it_stands
        with steps.step(f"a clean Debian {RELEASE}"):
            self._bare = Machine(roots.fresh(RELEASE), roots.lent)
        self._installing = replace(self._bare, user=USER, folder=HOME)
        self._ada = replace(self._installing, lend=False)

    def play(self) -> None:
        """Run everything. Raise `StepFailed` at the first failure."""
        self._prepare()
        self._first_run()
        there = replace(self._ada, folder=CLONE)
        with (
            there.running("model", PYTHON, "-m", "scripts.clean_room.code_word_model") as model,
            there.running("telegram", PYTHON, "-m", "tests.doubles.telegram") as telegram,
        ):
            self._set_up(model, telegram)
            self._service()
            with self._gateway(self._ada) as gateway:
                self._talk(telegram, "The code word is heron.", "The code word: heron")
                self._back_up()
                self._end(gateway)
            self._restore()
            elsewhere = replace(self._ada, variables={"NANOBOT_HOME": ELSEWHERE})
            with self._gateway(elsewhere) as gateway:
                self._talk(telegram, "Which one did I tell you?", "(?s)heron.*The code word: heron")
                self._end(gateway)

    def _prepare(self) -> None:
        with self._steps.step(f"apt-get install {' '.join(PACKAGES)}"):
            self._bare.run("apt-get", "update")
            self._bare.run(
                *("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes"),
                *("--no-install-recommends", *PACKAGES),
            )
            self._bare.run("useradd", "--create-home", "--shell", "/bin/bash", USER)
        with self._steps.step("git clone") as step:
            place = Path(f"{self._bare.root}{HOME}")
            if self._as_it_stands:
                _copy_tree(place / "nanobot")
                self._bare.run("chown", "-R", f"{USER}:{USER}", CLONE)
            else:
                bundle = str(place / "nanobot.bundle")
                _git("bundle", "create", "--quiet", bundle, "HEAD")
                self._ada.run("git", "clone", "--quiet", "nanobot.bundle", "nanobot")
            step.note("as it stands" if self._as_it_stands else _git("rev-parse", "HEAD")[:12])

    def _first_run(self) -> None:
        with self._steps.step("make run, with piped input") as step:
            there = replace(self._installing, folder=CLONE)
            lines = there.run("make", "run", text=_BLUE).strip().splitlines()
            if not lines or "blue" not in lines[-1]:
                raise StepFailed("it does not remember the colour", "\n".join(lines))
            step.note(lines[-1])

    def _set_up(self, model: Program, telegram: Program) -> None:
        with self._steps.step("nanobot onboard --non-interactive …") as step:
            told_model = model.until(r"http://\S+")[0]
            address = telegram.until(r"base_url: (\S+)")[1]
            keys = {"MODEL_KEY": "k-1", "BOT_TOKEN": telegram.until(r"token: (\S+)")[1]}
            replace(self._ada, variables=keys).run(
                *(NANOBOT, "onboard", "--non-interactive"),
                *("--base-url", told_model, "--model-name", "fake-model"),
                *("--api-key-env", "MODEL_KEY", "--telegram-token-env", "BOT_TOKEN"),
                *("--telegram-base-url", address, "--owner-telegram", OWNER),
                *("--owner-name", "Ada", "--timezone", "Europe/Berlin"),
            )
            settings = Path(f"{self._bare.root}{HOME}/.nanobot")
            for name in ("config.yaml", "secrets.env"):
                if (settings / name).stat().st_mode & 0o777 != 0o600:
                    raise StepFailed(f"other users can read {name}")
            if keys["BOT_TOKEN"] in (settings / "config.yaml").read_text():
                raise StepFailed("config.yaml contains the token")
            step.note("config.yaml and secrets.env, 0600")
        with self._steps.step("nanobot doctor"):
            self._ada.run(NANOBOT, "doctor")

    def _service(self) -> None:
        title = "nanobot service install --dry-run | systemd-analyze verify"
        if shutil.which("systemd-analyze") is None:
            self._steps.skip(title, "there is no systemd-analyze on this machine")
            return
        with self._steps.step(title):
            unit = self._ada.run(NANOBOT, "service", "install", "--dry-run")
            file = Path(f"{self._bare.root}{HOME}/nanobot.service")
            file.write_text(unit[unit.index("[Unit]") :])
            verify = 'mount --bind "$1/home" /home; systemd-analyze --user verify "$2"'
            done = subprocess.run(
                [
                    *("unshare", "--mount", "--propagation", "private", "sh", "-ec", verify),
                    *("sh", str(self._bare.root), f"{HOME}/nanobot.service"),
                ],
                env={**os.environ, "XDG_RUNTIME_DIR": tempfile.gettempdir()},
                capture_output=True,
                text=True,
                check=False,
            )
            said = [line for line in done.stderr.splitlines() if "nanobot.service" in line]
            if done.returncode != 0 or said:
                raise StepFailed("the unit is not valid", done.stderr + unit)

    @contextmanager
    def _gateway(self, machine: Machine) -> Iterator[Program]:
        home = machine.variables.get("NANOBOT_HOME", f"{HOME}/.nanobot")
        with machine.running(f"gateway-{Path(home).name}", NANOBOT, "gateway") as gateway:
            with self._steps.step(f"nanobot gateway, in {home}") as step:
                gateway.until("ready")
                step.note(machine.run(NANOBOT, "status", "--check").strip().splitlines()[0])
            yield gateway

    def _talk(self, telegram: Program, words: str, answer: str) -> None:
        with self._steps.step(f"by Telegram: {words}") as step:
            telegram.say(words)
            step.note(telegram.until(answer, 60.0)[0].splitlines()[-1])

    def _back_up(self) -> None:
        with self._steps.step("nanobot backup, while it runs") as step:
            self._ada.run(NANOBOT, "backup", BACKUP)
            size = Path(f"{self._bare.root}{BACKUP}").stat().st_size
            step.note(f"{size / 1024:.0f} KiB")
        with self._steps.step("nanobot backup verify"):
            self._ada.run(NANOBOT, "backup", "verify", BACKUP)

    def _restore(self) -> None:
        with self._steps.step(f"nanobot restore --to {ELSEWHERE}"):
            self._ada.run(NANOBOT, "restore", BACKUP, "--to", ELSEWHERE)
            shutil.rmtree(f"{self._bare.root}{HOME}/.nanobot")  # no state from earlier steps

    def _end(self, gateway: Program) -> None:
        with self._steps.step("after SIGTERM, it exits with code 0"):
            if code := gateway.stop():
                raise StepFailed(f"exit code {code}", gateway.output())


def _copy_tree(target: Path) -> None:
    """Copy the current files of the repository, including uncommitted changes."""
    names = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, names):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise StepFailed(f"git {words[0]} failed", done.stderr)
    return done.stdout


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = parser_of("scripts.trial", __doc__)
    parser.add_argument("--as-it-stands", action="store_true", help="with uncommitted changes")
    return parser.parse_args(arguments)


def main() -> int:
    options = options_of()
    return run_in_roots(
        options,
        lambda roots, steps, _: Trial(roots, steps, as_it_stands=options.as_it_stands).play(),
    )


if __name__ == "__main__":
    sys.exit(main())
