"""Node.js: which one runs the helper, and whether it can.

What always holds: a program is used only after it has said a version that is new enough. Nothing
else of nanobot needs Node.js, so what is missing is said in words and stops this transport alone.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from nanobot.errors import NanobotError
from nanobot.tilde import expanded

NODE_VERSION = 20
"""The oldest major version of Node.js that runs the helper."""

_ANSWER_SECONDS = 20.0
_VERSION = re.compile(r"v(\d{1,4})\.\d+\.\d+")
_GET_IT = (
    f"Install Node.js {NODE_VERSION} or newer (nodejs.org; `sudo apt-get install nodejs npm` where"
    " that is new enough). If it is there and not found, write the path that `command -v node`"
    " prints into channels.whatsapp.node in config.yaml."
)


class NodeMissing(NanobotError):
    """There is no Node.js that runs the helper, or no npm beside it."""


def find_node(setting: str) -> Path:
    """The program to run, from the setting `node`: a path, or a name on the PATH.

    It is asked for its version, which takes some 50 ms: call this in a thread where others wait.
    Raises `NodeMissing`.
    """
    try:
        wanted = str(expanded(setting))
    except NanobotError as error:
        raise NodeMissing(f"Node.js cannot be looked for: {error}", hint=error.hint) from error
    found = shutil.which(wanted)
    if found is None:
        where = "" if "/" in wanted else " on the PATH"
        raise NodeMissing(
            f"WhatsApp as a linked device needs Node.js, and there is no program {wanted!r}{where}",
            hint=_GET_IT,
        )
    program = Path(found).absolute()
    version = _version_of(program)
    if version < NODE_VERSION:
        raise NodeMissing(
            f"{program} is Node.js {version}; WhatsApp as a linked device needs {NODE_VERSION}"
            " or newer",
            hint=_GET_IT,
        )
    return program


def find_npm(node: Path) -> Path:
    """The npm that belongs to `node`, else the one on the PATH. Raises `NodeMissing`."""
    for folder in (node.parent, node.resolve().parent):
        if found := shutil.which("npm", path=str(folder)):
            return Path(found)
    if found := shutil.which("npm"):
        return Path(found).absolute()
    raise NodeMissing(
        "npm, which installs what the WhatsApp helper needs, is not there",
        hint="It comes with Node.js from nodejs.org; on Debian and Ubuntu it is a package of its"
        " own: sudo apt-get install npm",
    )


def _version_of(program: Path) -> int:
    """Its major version. Raises `NodeMissing` for what is no Node.js."""
    try:
        answer = subprocess.run(  # noqa: S603 - the person's own setting says what is run
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or "it does not answer"
        raise NodeMissing(f"{program} cannot be run: {reason}", hint=_GET_IT) from error
    version = _VERSION.fullmatch(answer.stdout.decode("utf-8", "replace").strip())
    if answer.returncode or version is None:
        raise NodeMissing(f"{program} does not answer as Node.js does", hint=_GET_IT)
    return int(version[1])
