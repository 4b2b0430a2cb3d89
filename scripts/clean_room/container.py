"""An image that runs as in Docker with all precautions: a read-only root, a user without any
capability, its own network, `/proc` with masked paths, `/tmp` in memory.

Docker's seccomp profile is not applied. It keeps commands from creating namespaces, which has the
same effect as the masked `/proc`: bubblewrap does not work."""

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
from scripts.clean_room.processes import child_of, end, run_to_end
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
    """A running image. `folder` holds the contents of its volumes."""

    def __init__(self, image: Image, process: subprocess.Popen[bytes], log: Path) -> None:
        self._image, self._process, self._log = image, process, log

    def execute(
        self, words: Sequence[str], seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it as its user, like `docker exec`. See `run_to_end` for its end."""
        target = str(self._first_process())
        enter = ("nsenter", "--target", target, "--mount", "--pid", "--net", "--root")
        return run_to_end([*enter, *_start_of(self._image), *words], seconds)

    def until_healthy(self) -> float:
        """Run the health check until it passes, and return the seconds. Raise `StepFailed`."""
        health = self._image.health
        if health is None:
            raise StepFailed("there is no HEALTHCHECK")
        started = time.monotonic()
        said = ""
        while time.monotonic() < started + health.start_period:
            if self._process.poll() is not None:
                raise StepFailed(f"it exited with code {self._process.returncode}", self.log())
            done = self.execute(health.words, health.timeout)
            if done.returncode == 0:
                return time.monotonic() - started
            said = done.stdout
            time.sleep(0.2)
        raise StepFailed("the health check did not pass", said + self.log())

    def stop(self, seconds: float = 45.0) -> int:
        """Send SIGTERM to the first process, like `docker stop`, and return the exit code."""
        os.kill(self._first_process(), signal.SIGTERM)
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise StepFailed(f"it did not stop within {seconds:g} s", self.log()) from None

    def log(self) -> str:
        """Return its output so far."""
        return self._log.read_text(errors="replace")

    def _first_process(self) -> int:
        """Return its process 1 by its number on this machine, once it is isolated. Raise
        `StepFailed`."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                first = child_of(self._process)
                if str(Path(f"/proc/{first}/root").readlink()) != "/":
                    return first
            except OSError:  # it doesn't exist yet, or has ended
                pass
            time.sleep(0.05)
        raise StepFailed("it is not running", self.log())


@contextmanager
def running(image: Image, volumes: Path) -> Iterator[Container]:
    """Start the image by its ENTRYPOINT and CMD, and kill it at the end if it runs.

    `volumes` is a folder that keeps the contents of its volumes between starts."""
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
    """Return the folder of a volume. A new one begins with the image's contents."""
    volume = volumes / place.strip("/").replace("/", "-")
    if not volume.exists():
        subprocess.run(["cp", "-a", f"{image.root}{place}", str(volume)], check=True)
    return volume


def _start_of(image: Image) -> list[str]:
    """Return the prefix of a command that runs in the container."""
    drop = as_user(image.root, image.user) or ["setpriv"]
    environment = {"HOME": home_of(image.root, image.user), **image.variables}
    settings = (f"{name}={value}" for name, value in environment.items())
    return [*drop, *_POWERLESS, "env", "-i", "-C", image.folder, *settings]
