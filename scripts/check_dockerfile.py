"""Check the Dockerfile on a machine without a Docker engine.

    sudo python -m scripts.check_dockerfile [--build-arg WITH_WHATSAPP=0]

Each step runs in a clean Debian root, and the result is started as by Docker: as its user, without
capabilities, with a read-only root and without network. It has to become healthy without any
configuration, answer a message, have a sandbox for commands, end on SIGTERM with exit code 0, and
remember at the next start. It takes some minutes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.clean_room.building import Builder, Image
from scripts.clean_room.command_line import ROOT, parser_of, run_in_roots
from scripts.clean_room.container import Container, running
from scripts.clean_room.context import Context
from scripts.clean_room.dockerfile import DockerfileError, parse
from scripts.clean_room.roots import Roots
from scripts.clean_room.steps import StepFailed, Steps

_BUILDING = ("cc", "gcc", "g++", "make", "npm", "npx", "pip", "pip3", "tsc")
"""Programs that an image needs only while it is built."""

_HELPER = (
    "from pathlib import Path; from nanobot_whatsapp.linked.install import bridge_program;"
    "print(bridge_program(Path('/data')))"
)


def check(
    roots: Roots, steps: Steps, dockerfile: Path, given: Mapping[str, str], volumes: Path
) -> None:
    """Run the whole check. Raise `StepFailed` at the first failure."""
    with steps.step(f"read {dockerfile.name}"):
        try:
            parsed = parse(dockerfile.read_text())
        except DockerfileError as error:
            raise StepFailed(str(error)) from error
    image = Builder(parsed, Context(ROOT), roots, steps, given).build()
    with steps.step("it does not run as root, and contains no build tools") as step:
        step.note(_look_at(image))
    with running(image, volumes) as container:
        _first_start(container, steps, whatsapp=given.get("WITH_WHATSAPP") != "0")
    with running(image, volumes) as container:
        _second_start(container, steps)


def _look_at(image: Image) -> str:
    if image.user in ("", "root", "0"):
        raise StepFailed("it runs as root: add a USER instruction")
    folders = image.variables["PATH"].split(":")
    left = [
        f"{folder}/{name}"
        for name in _BUILDING
        for folder in folders
        if os.path.lexists(f"{image.root}{folder}/{name}")
    ]
    if left:
        raise StepFailed(f"build tools are left: {', '.join(left)}")
    return f"user {image.user}"


def _first_start(container: Container, steps: Steps, *, whatsapp: bool) -> None:
    with steps.step("the health check passes, without configuration or network") as step:
        step.note(f"after {container.until_healthy():.1f} s")
    with steps.step("nanobot agent -m … answers") as step:
        step.note(_run(container, "nanobot", "agent", "-m", "remember: the oven is blue"))
    with steps.step("nanobot doctor finds no problem") as step:
        lines = _run(container, "nanobot", "doctor").splitlines()
        step.note(next((" ".join(line.split()) for line in lines if " sandbox " in line), ""))
    if whatsapp:
        with steps.step("the WhatsApp helper is installed and can be loaded") as step:
            program = _run(container, "python", "-c", _HELPER)
            _run(container, "node", "--input-type=module", "--eval", _loading(program))
            step.note(_run(container, "node", "--version"))
    _stops(container, steps)


def _loading(program: str) -> str:
    """Return a script that loads the modules that the helper loads while it works."""
    return (
        "import {createRequire} from 'node:module';"
        f"const needs = createRequire({json.dumps(program)});"
        "for (const name of ['baileys', 'sharp']) await import(needs.resolve(name))"
    )


def _second_start(container: Container, steps: Steps) -> None:
    with steps.step("after a restart, it is healthy"):
        container.until_healthy()
    with steps.step("after a restart, the conversation is still there"):
        said = _run(container, "nanobot", "sessions", "show", "cli:direct")
        if "the oven is blue" not in said:
            raise StepFailed("the conversation is gone", said)
    _stops(container, steps)


def _stops(container: Container, steps: Steps) -> None:
    with steps.step("after SIGTERM, it exits with code 0"):
        if code := container.stop():
            raise StepFailed(f"exit code {code}", container.log())


def _run(container: Container, *words: str) -> str:
    """Run a command that has to succeed, and return its output."""
    done = container.execute(words)
    if done.returncode != 0:
        problem = f"{' '.join(words)[:60]}: exit code {done.returncode}"
        raise StepFailed(problem, done.stdout + container.log())
    return done.stdout.strip()


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = parser_of("scripts.check_dockerfile", __doc__)
    parser.add_argument("-f", "--file", type=Path, default=ROOT / "Dockerfile", metavar="FILE")
    parser.add_argument(
        "--build-arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="like the option of docker build",
    )
    return parser.parse_args(arguments)


def main() -> int:
    options = options_of()
    given = dict(pair.split("=", 1) for pair in options.build_arg)
    return run_in_roots(
        options,
        lambda roots, steps, volumes: check(roots, steps, options.file, given, volumes),
    )


if __name__ == "__main__":
    sys.exit(main())
