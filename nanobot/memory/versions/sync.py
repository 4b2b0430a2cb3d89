"""One memory on several devices, through a git repository that all of them reach.

Every device has a branch of its own and pushes only that, so that none waits for another, and
nothing that was said is overwritten. It takes the others' branches and merges, file by file, what
their newest version says into its own; a merge that changes nothing makes no version.

The base of a merge is what both sides knew. A version made by a sync holds in its trailers how far
it knew each other device (`Known`); with its own number that is a version vector. What both vectors
have is common; where that is several versions of which none knows the other, they are merged first.
Numbers stay when a history is erased and written anew, so bases are found then as well. A branch
holds no other's commits: erasing one device's history is complete on that device.

Nobody who writes to memory waits for the network: only what is read and written here is locked.

A git repository somewhere else: a folder, or an ssh or https address. Fetching and pushing.

Whatever goes wrong on the way is a `SyncFailed` that says what to do. A folder that is empty or not
there yet, in one that is, becomes a repository. Nothing is asked on a terminal: ssh uses its keys
and agent, https the user and token in the address. A peer that says nothing more is given up.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from nanobot.errors import NanobotError, StorageError
from nanobot.memory.text.lines import merge
from nanobot.memory.versions.git import Commit, Repository, build
from nanobot.memory.versions.version import Message, SyncResult, Versions, scope_of
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


Write = Callable[[str, str | None, str], None]
Hides = Callable[[str, str], bool]
Clock = dict[str, int]
"""Device to the number of its newest version that is known."""

_DEVICE = re.compile(r"device-[0-9a-f]{8}")
_LIMIT = 10_000_000
_PUSHED, _INHERITED = "pushed.json", "inherited.json"


@dataclass(slots=True)
class _Branch:
    """The commits of a device, oldest first, and what was known at each.

    `seen` is the branch as it was at the last sync: where the device erased something since, only
    that still says what both had.
    """

    device: str
    commits: list[Commit]
    seen: list[Commit] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)

    def clock(self, number: int) -> Clock:
        return self.clocks[number - 1]

    def as_seen(self, number: int) -> Commit:
        return (self.seen if number <= len(self.seen) else self.commits)[number - 1]


class Syncing:
    """One sync of the store's repository; `write` and `hides` as in `GitStore.sync`."""

    def __init__(self, store: Versions, repository: Repository, write: Write, hides: Hides) -> None:
        self._store = store
        self._repository = repository
        self._write, self._hides = write, hides
        self._branches: dict[str, _Branch] = {}
        self._tips: dict[str, str] = {}

    def run(self, address: str) -> SyncResult:
        """Fetch, merge and push. Raises `SyncFailed`, and what `write` raises."""
        with self._store.syncing():
            return self._run(Remote(address))

    def _run(self, remote: Remote) -> SyncResult:
        with self._store.locked():
            self._repository.create()
            self._record_hand_edits()
            before = self._store.tip_number()
        devices = self._fetch(remote)
        conflicts: list[str] = []
        for device in devices:
            conflicts += self._merge(device)
        self._push(remote)
        after = self._store.tip_number()
        numbers = tuple(
            number
            for number in range(before + 1, after + 1)
            if self._store.author_of(number) == "sync"
        )
        return SyncResult(numbers, tuple(devices), tuple(conflicts))

    def _record_hand_edits(self) -> None:
        tip = self._repository.tip()
        paths = self._repository.files(self._repository.commit(tip).tree) if tip else {}
        scopes = {scope_of(path) or "" for path in paths}
        for prefix in sorted(scopes | {""}):
            self._store.record_hand_edits(prefix)

    def _fetch(self, remote: Remote) -> list[str]:
        with self._store.locked():
            own = self._repository.branch
        self._tips = remote.fetch(
            self._repository.path, own, lambda name: _DEVICE.fullmatch(name) is not None
        )
        with self._store.locked():
            if own in self._tips and self._is_foreign(self._tips[own], remote):
                self._take_new_name(own, self._tips[own])
            own = self._repository.branch
        return [device for device in sorted(self._tips) if device != own]

    def _is_foreign(self, tip: str, remote: Remote) -> bool:
        """Whether someone else pushed under this device's name: its twin from a copy or backup."""
        ours = {commit.id for commit in self._repository.chain(self._repository.tip())}
        return tip not in ours and tip != self._noted(_PUSHED).get(_name(remote))

    def _take_new_name(self, old: str, theirs: str) -> None:
        ours = list(self._repository.chain(self._repository.tip()))
        shared = {commit.id for commit in self._repository.chain(theirs)}
        common = next((len(ours) - i for i, one in enumerate(ours) if one.id in shared), 0)
        new = f"device-{secrets.token_hex(4)}"
        inherited = self._inherited() | {old: common}
        self._repository.write_file(_INHERITED, json.dumps(inherited).encode())
        self._repository.set_tip(self._repository.tip(), new)
        self._repository.set_own_branch(new)

    def _merge(self, device: str) -> list[str]:
        with self._store.locked():
            self._branches.pop(self._repository.branch, None)
            ours, theirs = self._branch(self._repository.branch), self._branch(device)
            texts, conflicts, clock = self._merged(ours, theirs)
        left = len(texts)
        for path, (expected, text) in texts.items():
            left -= 1
            # What is known is said last: a sync cut short merges the rest again.
            with self._store.knowing({} if left else clock):
                self._write(path, expected, text)
        with self._store.locked():
            self._repository.set_tip(self._tips[device], device)
        return conflicts

    def _merged(
        self, ours: _Branch, theirs: _Branch
    ) -> tuple[dict[str, tuple[str | None, str]], list[str], Clock]:
        known, news = _clock(ours), _clock(theirs)
        base = self._base(known, news)
        mine = self._texts(ours.commits[-1]) if ours.commits else {}
        other = self._shown(self._texts(theirs.commits[-1]), mine)
        changed: dict[str, tuple[str | None, str]] = {}
        conflicts: list[str] = []
        for path in sorted(other):
            merged = merge(base.get(path, ""), mine.get(path, ""), other[path])
            if merged.text != mine.get(path, ""):
                changed[path] = (mine.get(path), merged.text)
                conflicts += [f"{path}: {conflict}" for conflict in merged.conflicts]
        clock = _latest(known, news)
        return changed, conflicts, {name: clock[name] for name in clock if name != ours.device}

    def _base(self, one: Clock, other: Clock) -> dict[str, str]:
        """The texts that both of these have seen."""
        common = [
            (self._branch(device), min(one[device], other[device]))
            for device in sorted(one.keys() & other.keys())
        ]
        known = [(branch, number) for branch, number in common if 0 < number <= len(branch.commits)]
        newest = [
            (branch, number)
            for branch, number in known
            if not any(
                rest is not branch and rest.clock(upto).get(branch.device, 0) >= number
                for rest, upto in known
            )
        ]
        texts: dict[str, str] = {}
        clock: Clock = {}
        for branch, number in newest:
            mine, coming = texts, self._texts(branch.as_seen(number))
            base = self._base(clock, branch.clock(number)) if clock else {}
            texts = mine | {
                path: merge(base.get(path, ""), mine.get(path, ""), text).text
                for path, text in coming.items()
            }
            clock = _latest(clock, branch.clock(number))
        return texts

    def _branch(self, device: str) -> _Branch:
        if device not in self._branches:
            own, here = device == self._repository.branch, self._repository.tip(device)
            seen = list(self._repository.chain(here))[::-1]
            tip = self._tips.get(device, "")
            new = seen if own or tip in {"", here} else list(self._repository.chain(tip))[::-1]
            branch = _Branch(device, new, seen)
            clock: Clock = self._inherited() if own else {}
            for number, commit in enumerate(branch.commits, 1):
                clock = _latest(clock, Message.parse(commit.message).known) | {device: number}
                branch.clocks.append(clock)
            self._branches[device] = branch
        return self._branches[device]

    def _shown(self, theirs: dict[str, str], mine: Mapping[str, str]) -> dict[str, str]:
        """Their texts without the lines that were forgotten here."""
        shown = {}
        for path, text in theirs.items():
            known = set(mine.get(path, "").splitlines())
            lines = text.splitlines(keepends=True)
            kept = (line for line in lines if line.strip() in known or not self._gone(path, line))
            shown[path] = "".join(kept)
        return shown

    def _gone(self, path: str, line: str) -> bool:
        return bool(line.strip()) and self._hides(path, line.strip())

    def _texts(self, commit: Commit) -> dict[str, str]:
        files = self._repository.files(commit.tree)
        contents = {
            path: self._repository.content(blob)
            for path, blob in files.items()
            if scope_of(path) is not None  # another device has no say in any other file
        }
        return {
            path: content.decode("utf-8", "replace")
            for path, content in contents.items()
            if len(content) <= _LIMIT
        }

    def _push(self, remote: Remote) -> None:
        with self._store.locked():
            branch, tip = self._repository.branch, self._repository.tip()
        if not tip:
            return
        remote.push(self._repository.path, branch, tip)
        with self._store.locked():
            pushed = self._noted(_PUSHED) | {_name(remote): tip}
            self._repository.write_file(_PUSHED, json.dumps(pushed).encode())

    def _inherited(self) -> Clock:
        return {name: int(number) for name, number in self._noted(_INHERITED).items()}

    def _noted(self, name: str) -> dict[str, str]:
        try:
            noted = json.loads(self._repository.read_file(name))
            return {str(key): str(value) for key, value in noted.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, AttributeError) as error:
            raise StorageError(self._repository.path / name, "it is damaged") from error


def _clock(branch: _Branch) -> Clock:
    return branch.clocks[-1] if branch.clocks else {}


def _latest(one: Mapping[str, int], other: Mapping[str, int]) -> Clock:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one.keys() | other.keys()}


def _name(remote: Remote) -> str:
    # An address can hold a password.
    return hashlib.sha256(remote.address.encode()).hexdigest()[:16]
