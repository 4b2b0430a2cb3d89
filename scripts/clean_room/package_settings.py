"""Package sources of this machine that a root may use while a command runs in it.

This machine's mirror, proxy or certificate authority is not under test, and without it nothing
could be installed. So settings of apt, pip and npm are copied into a folder that is visible as
`/run/lent`, and environment variables refer to them."""

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
class PackageSettings:
    """A folder visible as `/run/lent`, variables, and paths visible at their own places."""

    folder: Path
    variables: Mapping[str, str]
    paths: tuple[Path, ...]


@contextmanager
def collect_settings(paths: Sequence[Path] = ()) -> Iterator[PackageSettings]:
    """Collect the package settings of this machine. `paths` are folders that are also visible in
    the root, such as one with packages that pip's settings name."""
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
        yield PackageSettings(folder, variables, tuple(path for path in paths if path.is_dir()))


def _variables(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the relevant variables. A file named by one is copied, and the variable gets its new
    path."""
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
    """Return one file with the settings of `pip config list`. Paths to certificates are
    variables."""
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
