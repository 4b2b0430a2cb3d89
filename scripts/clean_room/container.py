"""An image as it runs in Docker with all precautions: a root that cannot be written, a user without
any capability, a network of its own, `/proc` with its holes covered, `/tmp` in memory.

What Docker's seccomp profile forbids is not forbidden here; that it keeps commands from making
namespaces of their own has the same effect as the covered `/proc`: bubblewrap does not work.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.clean_room.accounts import as_user, home_of
from scripts.clean_room.building import Image
from scripts.clean_room.processes import child_of, end, finished
from scripts.clean_room.steps import StepFailed

_START = """
set -e
root=$1; shift
mount --bind "$root" "$root"
mount -t tmpfs -o size=64m,mode=755,nosuid tmpfs "$root/dev"
for node in null zero full random urandom tty; do
    : > "$root/dev/$node"; mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o size=64m,mode=1777,nosuid,nodev,noexec tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
for file in kcore keys timer_list; do
    [ ! -e "$root/proc/$file" ] || mount --bind /dev/null "$root/proc/$file"
done
for folder in bus fs irq sys; do
    mount --bind "$root/proc/$folder" "$root/proc/$folder"
    mount -o remount,bind,ro "$root/proc/$folder"
done
mount -t tmpfs -o size=256m,mode=1777,nosuid,nodev,noexec tmpfs "$root/tmp"
while [ "$1" != -- ]; do mkdir -p "$root$2"; mount --bind "$1" "$root$2"; shift 2; done
shift
mount -o remount,bind,ro "$root"
ip link set lo up
exec chroot "$root" "$@"
"""

_START_SECONDS = 10.0

_POWERLESS = ("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


class Container:
    """An image that runs; `folder` holds what was mounted at its volumes."""

    def __init__(self, image: Image, process: subprocess.Popen[bytes], log: Path) -> None:
        self._image, self._process, self._log = image, process, log

    def execute(
        self, words: Sequence[str], seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """`docker exec`: a command in it, as its user. How it ends is what `finished` says."""
        target = str(self._first_process())
        enter = ("nsenter", "--target", target, "--mount", "--pid", "--net", "--root")
        return finished([*enter, *_start_of(self._image), *words], seconds)

    def until_healthy(self) -> float:
        """Ask as the health check says until it is content; the seconds that it took. Raises
        `StepFailed`."""
        health = self._image.health
        if health is None:
            raise StepFailed("there is no HEALTHCHECK")
        started = time.monotonic()
        said = ""
        while time.monotonic() < started + health.start_period:
            if self._process.poll() is not None:
                raise StepFailed(f"it ended with {self._process.returncode}", self.log())
            done = self.execute(health.words, health.timeout)
            if done.returncode == 0:
                return time.monotonic() - started
            said = done.stdout
            time.sleep(0.2)
        raise StepFailed("the health check does not pass", said + self.log())

    def stop(self, seconds: float = 45.0) -> int:
        """`docker stop`: SIGTERM to the first process; the exit code."""
        os.kill(self._first_process(), signal.SIGTERM)
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise StepFailed(f"it does not end within {seconds:g} s", self.log()) from None

    def log(self) -> str:
        """What it printed so far."""
        return self._log.read_text(errors="replace")

    def _first_process(self) -> int:
        """Its process 1, as it is numbered here, once it is shut in. Raises `StepFailed`."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                first = child_of(self._process)
                if str(Path(f"/proc/{first}/root").readlink()) != "/":
                    return first
            except OSError:  # it doesn't exist yet, or has ended
                pass
            time.sleep(0.05)
        raise StepFailed("it does not run", self.log())


@contextmanager
def running(image: Image, volumes: Path) -> Iterator[Container]:
    """The image, started as its ENTRYPOINT and CMD say. `volumes` is a folder that keeps what its
    volumes hold, from one start to the next. It is killed if it runs at the end."""
    log = volumes / "log"
    mounts: list[str] = []
    for place in image.volumes:
        mounts += [str(_volume(image, volumes, place)), place]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *("unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork"),
                *("--kill-child", "--propagation", "private"),
                *("sh", "-c", _START, "sh", str(image.root), *mounts, "--"),
                *_start_of(image),
                *(*image.entrypoint, *image.cmd),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Container(image, process, log)
    finally:
        end(process)


def _volume(image: Image, volumes: Path, place: str) -> Path:
    """The folder for one volume; a new one begins with what the image has there."""
    volume = volumes / place.strip("/").replace("/", "-")
    if not volume.exists():
        subprocess.run(["cp", "-a", f"{image.root}{place}", str(volume)], check=True)
    return volume


def _start_of(image: Image) -> list[str]:
    """What comes before a command that runs in the container."""
    drop = as_user(image.root, image.user) or ["setpriv"]
    environment = {"HOME": home_of(image.root, image.user), **image.variables}
    settings = (f"{name}={value}" for name, value in environment.items())
    return [*drop, *_POWERLESS, "env", "-i", "-C", image.folder, *settings]
