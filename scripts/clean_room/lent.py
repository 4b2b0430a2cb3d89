"""What a root is lent while a command runs in it: where packages come from on this machine.

A mirror, a proxy or a certificate authority of this machine's is no part of what is tried, and
without it nothing could be installed. So settings of apt, pip and npm are copied into a folder that
is seen as `/run/lent`, and the variables that name them say so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PLACE = "/run/lent"

_VARIABLES = re.compile(
    r"PIP_\w+|npm_config_\w+|NODE_EXTRA_CA_CERTS|SSL_CERT_FILE|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE"
    r"|GIT_SSL_CAINFO|(?:https?|no|all)_proxy",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Lent:
    """A folder to be seen as `/run/lent`, variables, and paths that are seen where they are."""

    folder: Path
    variables: Mapping[str, str]
    paths: tuple[Path, ...]


@contextmanager
def lent(paths: Sequence[Path] = ()) -> Iterator[Lent]:
    """What this machine has to lend. `paths` are folders to be seen in the root as well, such as
    one with packages that pip's settings name."""
    with tempfile.TemporaryDirectory(prefix="nanobot-lent-") as name:
        folder = Path(name, "seen")  # readable by users of the root only
        folder.mkdir(mode=0o755)
        variables = dict(_variables(folder))
        if settings := _output("apt-config", "dump"):
            wanted = [line for line in settings.splitlines() if line.startswith("Acquire::")]
            (folder / "apt.conf").write_text("\n".join(wanted) + "\n")
            variables["APT_CONFIG"] = f"{PLACE}/apt.conf"
        if settings := _output(sys.executable, "-m", "pip", "config", "list"):
            (folder / "pip.conf").write_text(_pip_settings(settings))
            variables["PIP_CONFIG_FILE"] = f"{PLACE}/pip.conf"
        npmrc = Path.home() / ".npmrc"
        if npmrc.is_file():
            shutil.copyfile(npmrc, folder / "npmrc")
            variables["npm_config_userconfig"] = f"{PLACE}/npmrc"
        yield Lent(folder, variables, tuple(path for path in paths if path.is_dir()))


def _variables(folder: Path) -> Iterator[tuple[str, str]]:
    """Those that matter; a file that one names is copied, and named by its new place."""
    for name, value in os.environ.items():
        if not _VARIABLES.fullmatch(name):
            continue
        if value.startswith("/") and Path(value).is_file():
            copy = folder / name.lower()
            shutil.copyfile(value, copy)
            yield name, f"{PLACE}/{copy.name}"
        else:
            yield name, value


def _pip_settings(listed: str) -> str:
    """What `pip config list` says of files, as one; paths to certificates come by variables."""
    lines = ["[global]"]
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.partition(".")
        if section == "global" and key != "cert":
            lines.append(f"{key} = {value.strip().strip(chr(39))}")
    return "\n".join(lines) + "\n"


def _output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""
