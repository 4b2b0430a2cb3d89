"""A git repository somewhere else: a folder, or an ssh or https address. Fetching and pushing.

Whatever goes wrong on the way is a `SyncFailed` that says what to do. A folder that is empty or not
there yet, in one that is, becomes a repository. Nothing is asked on a terminal: ssh uses its keys
and agent, https the user and token in the address. A peer that says nothing more is given up.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from nanobot.errors import NanobotError
from nanobot.memory.versions.durable import build
from nanobot.tilde import expanded

if TYPE_CHECKING:
    from dulwich.client import GitClient, SSHVendor, SubprocessWrapper
    from dulwich.objects import ObjectID
    from dulwich.pack import UnpackedObject
    from dulwich.refs import Ref
    from urllib3 import PoolManager

_SECONDS = 30
_TRANSFER_SECONDS = 120.0
_SSH = (
    f"ssh -oBatchMode=yes -oConnectTimeout={_SECONDS}"
    " -oServerAliveInterval=10 -oServerAliveCountMax=3"
)
_SCHEMES = ("ssh://", "git+ssh://", "http://", "https://")
_HEADS = b"refs/heads/"


class SyncFailed(NanobotError):
    """The other repository could not be used; nothing was lost here or there."""

    def __init__(self, address: str, reason: str, hint: str) -> None:
        super().__init__(f"cannot sync with {_without_password(address)}: {reason}", hint=hint)


class _Patience:
    """Ends the processes that take part in a transfer which takes longer than so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._processes: list[Popen[bytes]] = []

    @property
    def is_over(self) -> bool:
        """Whether it took too long."""
        return self._over.is_set()

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """Counts the seconds meanwhile."""
        self._over.clear()
        timer = threading.Timer(self.seconds, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:
                for process in self._processes:
                    _end(process)
                self._processes.clear()

    def watch(self, process: Popen[bytes]) -> None:
        """End this one as well."""
        with self._lock:
            self._processes.append(process)
        if self.is_over:
            process.kill()

    def check(self, progress: bytes = b"") -> None:
        """Raises `TimeoutError` when it is over; called with each piece that arrives."""
        del progress
        if self.is_over:
            raise TimeoutError

    def _end(self) -> None:
        self._over.set()
        with self._lock:
            for process in self._processes:
                process.kill()


class Remote:
    """The repository at `address`.

    Either way is given up after `seconds`. The repository here is given as its folder and this
    device's branch; it may be written to meanwhile, but not be replaced. Raises `SyncFailed` for an
    address in the folder of a user who is not known here.
    """

    def __init__(self, address: str, seconds: float = _TRANSFER_SECONDS) -> None:
        self.address = address.strip()
        self._folder = _folder(self.address)
        self._patience = _Patience(seconds)

    def fetch(self, repository: Path, branch: str, wanted: Callable[[str], bool]) -> dict[str, str]:
        """Get the wanted branches; return their tips. Raises `SyncFailed`."""
        from dulwich.repo import Repo

        found: dict[str, str] = {}
        with self._translated(), closing(Repo(str(repository))) as ours:
            self._make_folder(branch)

            def wants(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
                del depth
                for ref, tip in refs.items():
                    name = ref.removeprefix(_HEADS).decode("utf-8", "replace")
                    if ref.startswith(_HEADS) and wanted(name):
                        found[name] = tip.decode()
                new = (tip for tip in refs.values() if tip not in ours.object_store)
                return [tip for tip in dict.fromkeys(new) if tip.decode() in found.values()]

            client, path = self._client()
            client.fetch(path, ours, wants, progress=self._patience.check)
        return found

    def push(self, repository: Path, branch: str, tip: str) -> None:
        """Let this device's branch there end at the commit `tip`. Raises `SyncFailed`."""
        from dulwich.objects import ObjectID
        from dulwich.repo import Repo

        with self._translated(), closing(Repo(str(repository))) as ours:
            wanted = {_ref(branch): ObjectID(tip.encode())}

            def pack(
                have: AbstractSet[ObjectID],
                want: AbstractSet[ObjectID],
                *,
                ofs_delta: bool = True,
                progress: Callable[[bytes], None] | None = None,
            ) -> tuple[int, Iterator[UnpackedObject]]:
                del progress
                return ours.generate_pack_data(set(have), set(want), ofs_delta=ofs_delta)

            client, path = self._client()
            result = client.send_pack(path.encode(), lambda _: wanted, pack)
            refused = [reason for reason in (result.ref_status or {}).values() if reason]
        if refused:
            raise SyncFailed(
                self.address,
                f"it refused this device's branch ({refused[0]})",
                "Allow non-fast-forward pushes there; versions that were erased need them.",
            )

    def _client(self) -> tuple[GitClient, str]:
        from dulwich.client import (
            LocalGitClient,
            SSHGitClient,
            default_urllib3_manager,
            get_transport_and_path,
        )

        if self._folder is not None:
            return LocalGitClient(), str(self._folder)
        if "://" in self.address and not self.address.startswith(_SCHEMES):
            raise SyncFailed(
                self.address,
                "no such kind of address is known",
                "Use a folder, ssh:// or https://.",
            )
        if self.address.startswith(("http://", "https://")):
            pool = default_urllib3_manager(None, timeout=_SECONDS)
            return get_transport_and_path(self.address, pool_manager=cast("PoolManager", pool))
        client, path = get_transport_and_path(self.address, ssh_command=_SSH)
        if isinstance(client, SSHGitClient):
            client.ssh_vendor = self._ssh()
        return client, path

    def _ssh(self) -> SSHVendor:
        from dulwich.client import SubprocessSSHVendor

        patience = self._patience

        class Watched(SubprocessSSHVendor):
            def run_command(self, *args: Any, **kwargs: Any) -> SubprocessWrapper:
                connection = super().run_command(*args, **kwargs)
                patience.watch(connection.proc)
                return connection

        return Watched()

    def _make_folder(self, branch: str) -> None:
        folder = self._folder
        if folder is None or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
            return
        if not folder.parent.is_dir():
            raise SyncFailed(
                self.address,
                f"there is no folder {folder.parent}",
                "Make it first, or connect the disk that holds it.",
            )
        build(folder, branch)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from dulwich.client import HTTPProxyUnauthorized, HTTPUnauthorized, TransportNotAllowed
        from dulwich.errors import GitProtocolError, NotGitRepository
        from urllib3.exceptions import HTTPError

        try:
            with self._patience.lasting():
                yield
        except NotGitRepository as error:
            raise SyncFailed(
                self.address,
                "there is no git repository",
                "Make an empty one there (`git init --bare`), or correct the address.",
            ) from error
        except (HTTPUnauthorized, HTTPProxyUnauthorized) as error:
            raise SyncFailed(
                self.address,
                "it refused the user or password",
                "Put a valid token into the address (https://user:token@host/…), or use ssh.",
            ) from error
        except (GitProtocolError, HTTPError, OSError, TransportNotAllowed, ValueError) as error:
            if self._patience.is_over:
                raise SyncFailed(
                    self.address,
                    f"it was not done after {self._patience.seconds:g} seconds",
                    "Look at the network and that machine, and sync again; nothing was lost.",
                ) from error
            raise SyncFailed(
                self.address,
                _without_password(" ".join(str(error).split())[:300]) or type(error).__name__,
                "Look at the network and the address, and sync again; nothing was lost.",
            ) from error


def _end(process: Popen[bytes]) -> None:
    """See to it that nothing is left of a process; where dulwich fails it forgets it."""
    process.kill()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.wait()


def _ref(branch: str) -> Ref:
    from dulwich.refs import Ref

    return Ref(_HEADS + branch.encode())


def _folder(address: str) -> Path | None:
    """The folder that an address names, None for one elsewhere."""
    if address.startswith("file://"):
        return Path(unquote(urlsplit(address).path))
    if address.startswith(("/", "./", "../", "~")) or (":" not in address):
        try:
            return expanded(address)
        except NanobotError as error:
            raise SyncFailed(address, str(error), error.hint) from error
    return None


def _without_password(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", text)
