"""`memory sync`: one memory on several devices, through a git repository that all of them reach.

Every device pushes a branch of its own and no other, so nothing there is overwritten. It fetches
the others' branches and merges their newest texts into its own files, three-way and line by line;
a merge that changes nothing makes no version. Writers never wait for the network.

The base of a merge is what both sides knew. A version made by a sync says in `Known` trailers how
far it knew each other device; with its own number that is a version vector. What both vectors have
is common; where that is several versions of which none knows the other, they are merged first.
Version numbers survive erasing, commit ids do not, so the base is found by number. A branch holds
no other device's commits: erasing one device's history is complete on that device.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from nanobot.errors import NanobotError, StorageError
from nanobot.memory.text.lines import merge
from nanobot.memory.versions.git import Commit, build
from nanobot.memory.versions.gitstore import GitStore
from nanobot.memory.versions.version import Change, Message, SyncResult, scope_of
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
_WEB = ("http://", "https://")
_SCHEMES = ("ssh://", "git+ssh://", *_WEB)
_HEADS = b"refs/heads/"
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
                for ref, tip in refs.items():
                    name = ref.removeprefix(_HEADS).decode("utf-8", "replace")
                    if ref.startswith(_HEADS) and _DEVICE.fullmatch(name):
                        found[name] = tip.decode()
                tips = (tip for tip in refs.values() if tip.decode() in found.values())
                return [tip for tip in dict.fromkeys(tips) if tip not in ours.object_store]

            client, path = self._client()
            client.fetch(path, ours, wants)
        return found

    def push(self, repository: Path, branch: str, tip: str) -> None:
        """Let this device's branch there end at the commit `tip`."""
        from dulwich.objects import ObjectID
        from dulwich.refs import Ref
        from dulwich.repo import Repo

        wanted = {Ref(_HEADS + branch.encode()): ObjectID(tip.encode())}
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
        from dulwich.client import LocalGitClient, default_urllib3_manager, get_transport_and_path

        if self._folder is not None:
            return LocalGitClient(), str(self._folder)
        if self.address.startswith(_WEB):
            pool = default_urllib3_manager(None, timeout=_CONNECT_SECONDS)
            return get_transport_and_path(self.address, pool_manager=cast("PoolManager", pool))
        command = f"timeout {self._seconds} {_SSH}"
        return get_transport_and_path(self.address, ssh_command=command)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from dulwich.client import HTTPProxyUnauthorized, HTTPUnauthorized, TransportNotAllowed
        from dulwich.errors import GitProtocolError, NotGitRepository
        from urllib3.exceptions import HTTPError

        try:
            yield
        except NotGitRepository as error:
            raise SyncFailed(self.address, "there is no git repository") from error
        except (
            GitProtocolError,
            HTTPError,
            HTTPProxyUnauthorized,
            HTTPUnauthorized,
            OSError,
            TransportNotAllowed,
            ValueError,
        ) as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise SyncFailed(self.address, reason) from error


Write = Callable[[str, str | None, str, Change], None]
"""Puts a merged text into the file of that path where the expected text (None: no file) still
stands, and makes it a version, from any thread."""

Hides = Callable[[str, str], bool]
"""Whether a line of the file of that path was forgotten here, and is not taken over."""

VersionVector = dict[str, int]
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
    seen: list[Commit]
    vectors: list[VersionVector] = field(default_factory=list)

    @property
    def vector(self) -> VersionVector:
        return self.vectors[-1] if self.vectors else {}

    def as_seen(self, number: int) -> Commit:
        return (self.seen if number <= len(self.seen) else self.commits)[number - 1]


class Sync:
    """One sync of the store's versions with the repository at an address."""

    def __init__(self, store: GitStore, write: Write, hides: Hides) -> None:
        self._store, self._repository = store, store.repository
        self._write, self._hides = write, hides
        self._branches: dict[str, _Branch] = {}
        self._tips: dict[str, str] = {}

    def run(self, address: str) -> SyncResult:
        """Fetch, merge and push. Raises `SyncFailed`, and what `write` raises."""
        remote, store = Remote(address), self._store
        with store.syncing():
            with store.locked():
                self._repository.create()
                self._record_hand_edits()
                before = store.tip_number()
            devices = self._fetch(remote)
            conflicts = [conflict for device in devices for conflict in self._merge(device)]
            self._push(remote)
            new = range(before + 1, store.tip_number() + 1)
            numbers = tuple(number for number in new if store.author_of(number) == "sync")
        return SyncResult(numbers, tuple(devices), tuple(conflicts))

    def _record_hand_edits(self) -> None:
        tip = self._repository.tip()
        paths = self._repository.files(self._repository.commit(tip).tree) if tip else {}
        for prefix in sorted({scope_of(path) or "" for path in paths} | {""}):
            self._store.record_hand_edits(prefix)

    def _fetch(self, remote: Remote) -> list[str]:
        """The other devices whose branches were fetched."""
        with self._store.locked():
            own = self._repository.branch
        self._tips = remote.fetch(self._repository.path, own)
        with self._store.locked():
            ours = [commit.id for commit in self._chain(self._repository.tip())]
            tip = self._tips.get(own, "")
            if tip and tip not in ours and tip != self._noted(_PUSHED).get(_name(remote)):
                # A twin, made of a copy or backup of this home, pushed under this device's name.
                shared = {commit.id for commit in self._chain(tip)}
                common = sum(1 for commit in ours if commit in shared)
                self._note(_INHERITED, {own: common})
                own = f"device-{secrets.token_hex(4)}"
                self._repository.set_tip(self._repository.tip(), own)
                self._repository.set_own_branch(own)
        return [device for device in sorted(self._tips) if device != own]

    def _merge(self, device: str) -> list[str]:
        """Merge a device's newest texts; return where both changed the same line."""
        with self._store.locked():
            self._branches.pop(self._repository.branch, None)
            ours, theirs = self._branch(self._repository.branch), self._branch(device)
            base = self._base(ours.vector, theirs.vector)
            mine = self._texts(ours.commits[-1]) if ours.commits else {}
            other = self._texts(theirs.commits[-1])
        merged = {
            path: merge(
                base.get(path, ""),
                mine.get(path, ""),
                self._without_forgotten(path, text, mine.get(path, "")),
            )
            for path, text in sorted(other.items())
        }
        changed = [path for path, result in merged.items() if result.text != mine.get(path, "")]
        known = _latest(ours.vector, theirs.vector)
        known.pop(ours.device, None)
        for path in changed:
            # What is known is said last: a sync cut short merges the rest again.
            change = Change(
                "sync", "what another device learned", known=known if path == changed[-1] else {}
            )
            self._write(path, mine.get(path), merged[path].text, change)
        with self._store.locked():
            self._repository.set_tip(self._tips[device], device)
        return [f"{path}: {conflict}" for path in changed for conflict in merged[path].conflicts]

    def _base(self, one: VersionVector, other: VersionVector) -> dict[str, str]:
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
                rest is not branch and rest.vectors[upto - 1].get(branch.device, 0) >= number
                for rest, upto in known
            )
        ]
        texts: dict[str, str] = {}
        vector: VersionVector = {}
        for branch, number in newest:
            incoming = branch.vectors[number - 1]
            base = self._base(vector, incoming) if vector else {}
            texts |= {
                path: merge(base.get(path, ""), texts.get(path, ""), text).text
                for path, text in self._texts(branch.as_seen(number)).items()
            }
            vector = _latest(vector, incoming)
        return texts

    def _branch(self, device: str) -> _Branch:
        if device not in self._branches:
            own, here = device == self._repository.branch, self._repository.tip(device)
            seen = self._chain(here)
            tip = here if own else self._tips.get(device, "") or here
            branch = _Branch(device, seen if tip == here else self._chain(tip), seen)
            vector = {} if not own else {n: int(v) for n, v in self._noted(_INHERITED).items()}
            for number, commit in enumerate(branch.commits, 1):
                known = Message.parse(commit.message).change.known
                vector = _latest(vector, known) | {device: number}
                branch.vectors.append(vector)
            self._branches[device] = branch
        return self._branches[device]

    def _chain(self, tip: str) -> list[Commit]:
        return list(self._repository.chain(tip))[::-1]

    def _without_forgotten(self, path: str, theirs: str, mine: str) -> str:
        """Their text without the lines that were forgotten here."""
        known = {"", *mine.splitlines()}
        lines = theirs.splitlines(keepends=True)
        return "".join(
            line for line in lines if line.strip() in known or not self._hides(path, line.strip())
        )

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
        if tip:
            remote.push(self._repository.path, branch, tip)
            with self._store.locked():
                self._note(_PUSHED, {_name(remote): tip})

    def _note(self, name: str, values: Mapping[str, object]) -> None:
        content = json.dumps({**self._noted(name), **values})
        self._repository.write_file(name, content.encode())

    def _noted(self, name: str) -> dict[str, str]:
        try:
            noted = json.loads(self._repository.read_file(name))
            return {str(key): str(value) for key, value in noted.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, AttributeError) as error:
            raise StorageError(self._repository.path / name, "it is damaged") from error


def _latest(one: Mapping[str, int], other: Mapping[str, int]) -> VersionVector:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one.keys() | other.keys()}


def _name(remote: Remote) -> str:
    # An address can hold a password.
    return hashlib.sha256(remote.address.encode()).hexdigest()[:16]
