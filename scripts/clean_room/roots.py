"""Clean Debian roots: made once by mmdebstrap and kept, unpacked where one is needed, entered.

A command in a root has mounts and processes of its own. It shares the network of this machine,
because it has packages to fetch and servers to talk to.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from scripts.clean_room.lent import PLACE, Lent

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for, unless an image says otherwise."""

_REFERENCE = re.compile(
    r"(?:docker\.io/(?:library/)?)?debian:([a-z0-9]+?)(?:-\d{8})?(?:-slim)?(?:@sha256:\w+)?"
)
_NUMBERS = {"12": "bookworm", "13": "trixie", "14": "forky"}

_ENTER = f"""
set -e
root=$1; lent=$2; shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mkdir -p "$root{PLACE}"
mount --bind "$lent" "$root{PLACE}"
while [ "$1" != -- ]; do mkdir -p "$root$1"; mount --bind "$1" "$root$1"; shift; done
shift
exec chroot "$root" "$@"
"""


Process = subprocess.Popen[bytes] | subprocess.Popen[str]

OVERDUE = 124
"""The exit code of what took too long."""

_END_SECONDS = 10.0


class RoomError(Exception):
    """Something that a clean root needs is not to be had; the text says what."""


def release_of(reference: str) -> str:
    """The Debian release that an image reference names: `debian:trixie-slim` is `trixie`."""
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise RoomError(f"{reference} is no Debian release: only those can be made here")
    return _NUMBERS.get(found[1], found[1])


def require_tools() -> None:
    """Raises `RoomError` where a root cannot be made on this machine."""
    if os.geteuid() != 0:
        raise RoomError("a root can be made and entered by root only: run this with sudo")
    missing = [name for name in ("mmdebstrap", "unshare", "ip") if not shutil.which(name)]
    if missing:
        hint = "apt-get install mmdebstrap util-linux iproute2"
        raise RoomError(f"{', '.join(missing)} cannot be found: {hint}")


class Roots:
    """Where roots are kept (`cache`) and used (`folder`)."""

    def __init__(self, cache: Path, folder: Path, lent: Lent) -> None:
        self._cache, self._folder, self.lent = cache, folder, lent
        self._made = 0

    def fresh(self, release: str) -> Path:
        """A new root of a Debian release with its essential packages and apt, as small as that
        of a Docker image."""
        root = self._new()
        subprocess.run(
            ["tar", "-xf", str(self._archive(release)), "-C", str(root), "--numeric-owner"],
            check=True,
        )
        shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
        return root

    def like(self, other: Path) -> Path:
        """A new root with what another one holds."""
        root = self._new()
        subprocess.run(["cp", "-a", "--reflink=auto", f"{other}/.", str(root)], check=True)
        return root

    def run(
        self,
        root: Path,
        words: Sequence[str],
        *,
        user: str = "root",
        folder: str = "/",
        variables: Mapping[str, str] | None = None,
        lend: bool = True,
        text: str = "",
        seconds: float = 1800.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a root until it ends; `text` is its standard input. Its output is
        captured, errors among it; after so many seconds it is killed, with `OVERDUE` as its exit
        code."""
        process = subprocess.Popen(
            self.entering(root, words, user=user, folder=folder, variables=variables, lend=lend),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            said, _ = process.communicate(text, seconds)
        except subprocess.TimeoutExpired:
            end(process)
            return subprocess.CompletedProcess(words, OVERDUE, process.communicate()[0])
        finally:
            end(process)
        return subprocess.CompletedProcess(words, process.returncode, said)

    def entering(
        self,
        root: Path,
        words: Sequence[str],
        *,
        user: str = "root",
        folder: str = "/",
        variables: Mapping[str, str] | None = None,
        lend: bool = True,
    ) -> list[str]:
        """The command that runs `words` in a root. It ends when the command does, and everything
        that it started ends with it. With `lend` it is told where packages come from."""
        known = {"PATH": PATH, "HOME": home_of(root, user)} | dict(variables or {})
        environment = known | dict(self.lent.variables if lend else {})
        return [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"),
            *("sh", "-c", _ENTER, "sh", str(root), str(self.lent.folder)),
            *(*map(str, self.lent.paths), "--"),
            *(*as_user(root, user), "env", "-i", "-C", folder),
            *(*(f"{name}={value}" for name, value in environment.items()), *words),
        ]

    def tidy(self, root: Path) -> None:
        """Remove the traces of what was lent. Nothing may run in the root: it would lose that."""
        for place in (PLACE, *map(str, self.lent.paths)):
            folder = Path(f"{root}{place}")
            while folder != root and folder.is_dir() and not any(folder.iterdir()):
                if str(folder.relative_to(root)) in _STANDARD:
                    break
                folder.rmdir()
                folder = folder.parent

    def _new(self) -> Path:
        self._made += 1
        root = self._folder / f"root-{self._made}"
        root.mkdir(parents=True)
        root.chmod(0o755)
        return root

    def _archive(self, release: str) -> Path:
        kept = self._cache / f"debian-{release}.tar"
        if not kept.exists():
            self._cache.mkdir(parents=True, exist_ok=True)
            half = kept.with_suffix(f".{os.getpid()}.tar")
            command = ["mmdebstrap", "--quiet", "--variant=minbase", release, str(half)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                half.unlink(missing_ok=True)
                raise RoomError(f"mmdebstrap failed:\n{done.stderr[-2000:]}")
            half.rename(kept)
        return kept


_STANDARD = {"run", "opt", "usr", "etc", "home", "srv", "mnt", "var", "tmp", "root"}


def home_of(root: Path, user: str) -> str:
    """The home folder of a user of that root."""
    entry = _entry(root, user)
    return entry[5] if entry else "/"


def as_user(root: Path, user: str) -> list[str]:
    """What comes before a command that `user` (a name or a number) is to run in that root."""
    if user in ("", "root", "0"):
        return []
    entry = _entry(root, user)
    if entry is None and not user.isdigit():
        raise RoomError(f"there is no user {user}")
    uid, gid = (entry[2], entry[3]) if entry else (user, "0")
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]


def _entry(root: Path, user: str) -> list[str] | None:
    for line in (root / "etc/passwd").read_text().splitlines():
        fields = line.split(":")
        if user in (fields[0], fields[2]):
            return fields
    return None


def child_of(process: Process) -> int:
    """The process that another one started first and waits for, as it is numbered here. Raises
    `ProcessLookupError` where there is none."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        return int(children.read_text().split()[0])
    except (OSError, IndexError):
        raise ProcessLookupError(process.pid) from None


def end(process: Process) -> None:
    """Kill what was entered or started in a root, and wait until all of it is gone."""
    with suppress(ProcessLookupError):
        os.kill(child_of(process), signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
    process.kill()
    process.wait()
