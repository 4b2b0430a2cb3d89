"""`python -E -s -S FOLDER start COMMAND…` outside, then `… stage DESCRIPTOR COMMAND…` inside."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))

from nanobot.security.confine import stage, start  # noqa: E402
from nanobot.security.confine.spec import VARIABLE, Refused, Spec  # noqa: E402

NOT_STARTED = 125


def main(step: str, rest: list[str]) -> NoReturn:
    """Never returns: becomes something else, or ends."""
    try:
        if step == "start":
            line = (sys.executable, "-E", "-s", "-S", FOLDER, "stage")
            start.start(Spec.of_text(os.environ.pop(VARIABLE)), rest, line)
        with open(int(rest[0]), encoding="utf-8") as file:
            spec = Spec.of_text(file.read())
        stage.in_namespaces(spec, rest[1:])
    except (Refused, OSError) as error:
        sys.stderr.write(f"nanobot: the command was not started: {error}\n")
    sys.stderr.flush()
    os._exit(NOT_STARTED)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
