"""Clean Debian roots: made once by mmdebstrap, cached, and unpacked when needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from scripts.clean_room.package_settings import PLACE, PackageSettings

_REFERENCE = re.compile(
    r"(?:docker\.io/(?:library/)?)?debian:([a-z0-9]+?)(?:-\d{8})?(?:-slim)?(?:@sha256:\w+)?"
)
_NUMBERS = {"12": "bookworm", "13": "trixie", "14": "forky"}


class RoomError(Exception):
    """A requirement of clean roots is missing. The text names it."""


def release_of(reference: str) -> str:
    """Return the Debian release in an image reference: `debian:trixie-slim` is `trixie`."""
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise RoomError(f"{reference} is not a Debian release, and only those can be created here")
    return _NUMBERS.get(found[1], found[1])


def require_tools() -> None:
    """Raise `RoomError` if a root cannot be made on this machine."""
    if os.geteuid() != 0:
        raise RoomError("only root can create and enter a root: run this with sudo")
    missing = [name for name in ("mmdebstrap", "unshare", "ip") if not shutil.which(name)]
    if missing:
        hint = "apt-get install mmdebstrap util-linux iproute2"
        raise RoomError(f"{', '.join(missing)} was not found: {hint}")


class Roots:
    """The folders of cached roots (`cache`) and of roots in use (`folder`)."""

    def __init__(self, cache: Path, folder: Path, lent: PackageSettings) -> None:
        self._cache, self._folder, self.lent = cache, folder, lent
        self._made = 0

    def fresh(self, release: str) -> Path:
        """Create a root of a Debian release with its essential packages and apt, as small as that
        of a Docker image."""
        root = self._new()
        subprocess.run(
            ["tar", "-xf", str(self._archive(release)), "-C", str(root), "--numeric-owner"],
            check=True,
        )
        shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
        return root

    def like(self, other: Path) -> Path:
        """Create a copy of another root."""
        root = self._new()
        subprocess.run(["cp", "-a", "--reflink=auto", f"{other}/.", str(root)], check=True)
        return root

    def tidy(self, root: Path) -> None:
        """Remove the traces of the lent settings. Nothing may run in the root, because it would
        lose them."""
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
