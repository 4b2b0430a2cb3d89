"""`memory sync`: one memory on several devices, through a git repository that all of them reach.

Every device pushes a branch of its own and no other, so nothing there is overwritten. It fetches
the others' branches and merges their newest texts into its own files, three-way and line by line;
a merge that changes nothing makes no version. Writers never wait for the network.

The base of a merge is the last state that both devices know: our version that the other one has
merged, as its newest `Known` trailer says by number, or else its state at our last sync, to which
our copy of its branch still points. A branch holds no other device's commits: erasing one device's
history is complete on that device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from nanobot.errors import NanobotError
from nanobot.memory.files import text_of
from nanobot.memory.git import build, new_branch
from nanobot.memory.gitstore import GitStore
from nanobot.memory.lines import merge, split
from nanobot.memory.version import Change, Message, scope_of
from nanobot.text import expanduser

if TYPE_CHECKING:
    from dulwich.client import GeneratePackDataFunc, GitClient
    from dulwich.objects import ObjectID
    from dulwich.refs import Ref
    from urllib3 import PoolManager

_CONNECT_SECONDS = 30
_TRANSFER_SECONDS = 120.0
_SSH = (
    f"ssh -oBatchMode=yes -oConnectTimeout={_CONNECT_SECONDS}"
    " -oServerAliveInterval=10 -oServerAliveCountMax=3"
)
_SCHEMES = ("ssh://", "git+ssh://", "http://", "https://")
_DEVICE = re.compile(r"refs/heads/(device-[0-9a-f]{8})")
_LIMIT = 10_000_000
_HINT = (
    "Nothing was lost. Check the address (a folder, ssh:// or https:// with a bare git repository; "
    "https takes a token: https://user:token@host/…), the network and that machine; one that does "
    "not answer within two minutes is given up. Then sync again."
)


class SyncFailed(NanobotError):
    """The other repository could not be used; nothing was lost here or there."""

    def __init__(self, address: str, reason: str, hint: str = _HINT) -> None:
        text = f"cannot sync with {address}: {reason}"
        super().__init__(re.sub(r"//[^/@\s]*@", "//", text), hint=hint)  # without the password


class SyncResult(Struct, frozen=True):
    """What a sync brought: the versions it made here, from these other devices.

    `conflicts` says where two devices changed the same line; what either wrote was kept.
    """

    numbers: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


class Remote:
    """The repository at `address`: a folder, or an address that ssh or https reaches.

    A folder that is missing or empty becomes a repository. Nothing is asked on a terminal: ssh uses
    its keys and agent, https the user and token in the address; ssh is ended after `seconds`. What
    fails on the way is a `SyncFailed`.
    """

    def __init__(self, address: str, seconds: float = _TRANSFER_SECONDS) -> None:
        self.address = address.strip()
        self._seconds = seconds
        self._folder = self._as_folder()

    def fetch(self, repository: Path, branch: str) -> dict[str, str]:
        """Get every device's branch into the repository here; return their tips. `branch` is this
        device's."""
        from dulwich.repo import Repo

        found: dict[str, str] = {}
        with self._translated(), closing(Repo(str(repository))) as ours:
            folder = self._folder
            if folder and (not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))):
                build(folder, branch)

            def wants(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
                del depth
                tips: set[ObjectID] = set()
                for ref, tip in refs.items():
                    if match := _DEVICE.fullmatch(ref.decode("utf-8", "replace")):
                        found[match[1]] = tip.decode()
                        tips.add(tip)
                return [tip for tip in tips if tip not in ours.object_store]

            client, path = self._client()
            client.fetch(path, ours, wants)
        return found

    def push(self, repository: Path, branch: str, tip: str) -> None:
        """Let this device's branch there end at the commit `tip`."""
        from dulwich.objects import ObjectID
        from dulwich.refs import Ref
        from dulwich.repo import Repo

        wanted = {Ref(f"refs/heads/{branch}".encode()): ObjectID(tip.encode())}
        with self._translated(), closing(Repo(str(repository))) as ours:
            client, path = self._client()
            pack = cast("GeneratePackDataFunc", ours.generate_pack_data)
            result = client.send_pack(path.encode(), lambda _: wanted, pack)
        if refused := [reason for reason in (result.ref_status or {}).values() if reason]:
            raise SyncFailed(
                self.address,
                f"it refused this device's branch ({refused[0]})",
                "Allow non-fast-forward pushes there; versions that were erased need them.",
            )

    def _as_folder(self) -> Path | None:
        address = self.address
        if address.startswith("file://"):
            return Path(unquote(urlsplit(address).path))
        if address.startswith(("/", "./", "../", "~")) or (":" not in address):
            return expanduser(address)
        if "://" in address and not address.startswith(_SCHEMES):
            raise SyncFailed(address, "no such kind of address is known")
        return None

    def _client(self) -> tuple[GitClient, str]:
        from dulwich.client import default_urllib3_manager, get_transport_and_path

        address = str(self._folder or self.address)
        pool = cast("PoolManager", default_urllib3_manager(None, timeout=_CONNECT_SECONDS))
        command = f"timeout {self._seconds} {_SSH}"
        return get_transport_and_path(address, ssh_command=command, pool_manager=pool)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from dulwich.client import HTTPProxyUnauthorized, HTTPUnauthorized, TransportNotAllowed
        from dulwich.errors import GitProtocolError, NotGitRepository
        from urllib3.exceptions import HTTPError

        refused = (HTTPProxyUnauthorized, HTTPUnauthorized, TransportNotAllowed)
        try:
            yield
        except (
            GitProtocolError,
            HTTPError,
            NotGitRepository,
            OSError,
            ValueError,
            *refused,
        ) as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise SyncFailed(self.address, reason) from error


Write = Callable[[str, str | None, str, Change], int]
"""Puts a merged text into the file of that path where the expected text (None: no file) still
stands, from any thread; returns the number of the version."""

Hides = Callable[[str, str], bool]
"""Whether a line of the file of that path was forgotten here, and is not taken over."""


class Sync:
    """Syncs the versions of a store with other repositories."""

    def __init__(self, store: GitStore, write: Write, hides: Hides) -> None:
        self._store, self._repository = store, store.repository
        self._write, self._hides = write, hides

    def run(self, address: str) -> SyncResult:
        """Fetch, merge and push. Raises `SyncFailed`, and what `write` raises."""
        remote, store, repository = Remote(address), self._store, self._repository
        conflicts: list[str] = []
        with store.syncing():
            with store.locked():
                repository.create()
                paths = (path for version in store.versions() for path in version.paths)
                for prefix in sorted({scope_of(path) or "" for path in paths} | {""}):
                    store.record_hand_edits(prefix)
                branch = repository.branch
            tips = remote.fetch(repository.path, branch)
            with store.locked():
                own = self._own_branch(branch, tips)
                devices = {device: tip for device, tip in sorted(tips.items()) if device != own}
                ours = self._texts(repository.tip())
                merged = dict(ours)
                for device, tip in devices.items():
                    conflicts += self._merge(merged, device, tip, own)
            numbers = self._write_all(ours, merged, devices)
            with store.locked():
                for device, tip in devices.items():
                    repository.set_tip(tip, device)
                tip = repository.tip()
            if tip:
                remote.push(repository.path, own, tip)
        return SyncResult(numbers, tuple(devices), tuple(conflicts))

    def _own_branch(self, branch: str, tips: Mapping[str, str]) -> str:
        """The branch to push. Where the one there is of a twin, made of a copy or a backup of this
        home, that is another device from now on, and this one gets a new name."""
        if branch not in tips:
            return branch
        there, ours = self._repository.commit(tips[branch]), self._store.versions()
        number = Message.parse(there.message).number
        if 0 < number <= len(ours) and ours[number - 1].when == there.when:
            return branch  # this device's own; after erasing with another id
        theirs = {commit.id for commit in self._repository.chain(there.id)}
        common = [version.commit for version in ours if version.commit in theirs]
        own, tip = new_branch(), self._repository.tip()
        self._repository.set_tip(tip, own)
        self._repository.write_file("HEAD", f"ref: refs/heads/{own}\n".encode())
        if common:
            self._repository.set_tip(common[-1], branch)
        return own

    def _merge(self, merged: dict[str, str], device: str, tip: str, own: str) -> Iterator[str]:
        """Merge a device's newest texts into `merged`; return where both changed the same line."""
        base = self._texts(self._base(device, tip, own))
        for path, text in sorted(self._texts(tip).items()):
            mine = merged.get(path, "")
            result = merge(base.get(path, ""), mine, self._without_forgotten(path, text, mine))
            if result.text != mine:
                merged[path] = result.text
                yield from (f"{path}: {conflict}" for conflict in result.conflicts)

    def _write_all(
        self, ours: Mapping[str, str], merged: Mapping[str, str], devices: Mapping[str, str]
    ) -> tuple[int, ...]:
        """Write what a merge changed. What is known is said last: a sync that is cut short merges
        again."""
        changed = {path: text for path, text in merged.items() if text != ours.get(path, "")}
        summary, numbers = "what another device learned", list[int]()
        for path, text in changed.items():
            known = {}
            if path == next(reversed(changed)):
                known = {device: self._number(tip) for device, tip in devices.items()}
            change = Change("sync", summary, known=known)
            numbers.append(self._write(path, ours.get(path), text, change))
        return tuple(numbers)

    def _number(self, commit: str) -> int:
        with self._store.locked():
            return Message.parse(self._repository.commit(commit).message).number

    def _base(self, device: str, tip: str, own: str) -> str:
        """The commit of the last state that both sides know, empty for none."""
        versions = self._store.versions()
        theirs = [(one.id, Message.parse(one.message)) for one in self._repository.chain(tip)]
        known_there = (said.change.known for _, said in theirs)
        merged_there = next((known[own] for known in known_there if own in known), 0)
        merged_here = max((one.number for one in versions if device in one.change.known), default=0)
        if 0 < merged_there <= len(versions) and merged_there >= merged_here:
            return versions[merged_there - 1].commit
        seen, there = self._repository.tip(device), {commit for commit, _ in theirs}
        ours = [version.commit for version in versions]
        if seen in ours and seen not in there:  # a twin's, whom we have not met: ours alone
            return next((commit for commit in reversed(ours) if commit in there), "")
        if seen or not merged_here:
            return seen
        # An erasure took our copy of its branch; which of its versions we merged is still said.
        upto = versions[merged_here - 1].change.known[device]
        return next((commit for commit, said in theirs if said.number == upto), "")

    def _without_forgotten(self, path: str, theirs: str, mine: str) -> str:
        """Their text without the lines that were forgotten here."""
        known = {"", *split(mine)}
        return "\n".join(
            line
            for line in theirs.split("\n")
            if line.strip() in known or not self._hides(path, line.strip())
        )

    def _texts(self, commit: str) -> dict[str, str]:
        """The texts of a commit; another device has no say in any file but the tracked ones."""
        if not commit:
            return {}
        files = self._repository.changed("", self._repository.commit(commit).tree)
        tracked = {path: blob for path, blob in files if scope_of(path) is not None}
        contents = {path: self._repository.content(blob) for path, blob in tracked.items()}
        return {path: text_of(text) for path, text in contents.items() if len(text) <= _LIMIT}
