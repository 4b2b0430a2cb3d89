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

from msgspec import Struct

from nanobot.errors import NanobotError
from nanobot.memory.files import text_of
from nanobot.memory.git import Repository, build, new_branch
from nanobot.memory.gitstore import GitStore
from nanobot.memory.lines import merge, split
from nanobot.memory.version import Change, CommitMessage, scope_of
from nanobot.text import expanduser

if TYPE_CHECKING:
    from dulwich.client import GeneratePackDataFunc, GitClient
    from dulwich.objects import ObjectID
    from dulwich.refs import Ref
    from dulwich.repo import Repo
    from urllib3 import PoolManager

_CONNECT_SECONDS = 30
_TRANSFER_SECONDS = 120.0
_SSH = (
    f"ssh -oBatchMode=yes -oConnectTimeout={_CONNECT_SECONDS}"
    " -oServerAliveInterval=10 -oServerAliveCountMax=3"
)
_SCHEMES = ("ssh://", "git+ssh://", "http://", "https://", "file://")
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


@contextmanager
def _remote(
    address: str, repository: Path, seconds: float = _TRANSFER_SECONDS
) -> Iterator[tuple[GitClient, str, Repo]]:
    """The repository at `address` (a folder, or an address that ssh or https reaches): a client for
    it, its path there, and our own repository.

    Nothing is asked on a terminal: ssh uses its keys and agent, https the user and token in the
    address; ssh is ended after `seconds`. What fails within is a `SyncFailed`.
    """
    from dulwich.client import (
        HTTPProxyUnauthorized,
        HTTPUnauthorized,
        TransportNotAllowed,
        default_urllib3_manager,
        get_transport_and_path,
    )
    from dulwich.errors import GitProtocolError, NotGitRepository
    from dulwich.repo import Repo
    from urllib3.exceptions import HTTPError

    pool = cast("PoolManager", default_urllib3_manager(None, timeout=_CONNECT_SECONDS))
    command = f"timeout {seconds} {_SSH}"
    refused = (HTTPProxyUnauthorized, HTTPUnauthorized, TransportNotAllowed, HTTPError)
    try:
        with closing(Repo(str(repository))) as ours:
            client, path = get_transport_and_path(address, ssh_command=command, pool_manager=pool)
            yield client, path, ours
    except (GitProtocolError, NotGitRepository, OSError, ValueError, *refused) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise SyncFailed(address, reason) from error


def fetch(address: str, repository: Path, seconds: float = _TRANSFER_SECONDS) -> dict[str, str]:
    """Get every device's branch into the repository here, and nothing else; return their tips."""
    found: dict[str, ObjectID] = {}
    with _remote(address, repository, seconds) as (client, path, ours):

        def wanted(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
            del depth
            matches = ((_DEVICE.fullmatch(ref.decode("utf-8", "replace")), ref) for ref in refs)
            found.update({match[1]: refs[ref] for match, ref in matches if match})
            return [tip for tip in set(found.values()) if tip not in ours.object_store]

        client.fetch(path, ours, wanted)
    return {device: tip.decode() for device, tip in found.items()}


def _push(address: str, repository: Path, branch: str, tip: str) -> None:
    """Let this device's branch there end at the commit `tip`."""
    from dulwich.objects import ObjectID
    from dulwich.refs import Ref

    wanted = {Ref(f"refs/heads/{branch}".encode()): ObjectID(tip.encode())}
    with _remote(address, repository) as (client, path, ours):
        pack = cast("GeneratePackDataFunc", ours.generate_pack_data)
        result = client.send_pack(path.encode(), lambda _: wanted, pack)
    if refused := [reason for reason in (result.ref_status or {}).values() if reason]:
        raise SyncFailed(
            address,
            f"it refused this device's branch ({refused[0]})",
            "Allow non-fast-forward pushes there; versions that were erased need them.",
        )


def _resolved(address: str, branch: str) -> str:
    """The address for the client. A folder that is missing or empty becomes a repository."""
    if "://" in address and not address.startswith(_SCHEMES):
        raise SyncFailed(address, "no such kind of address is known")
    if ":" in address and not address.startswith(("/", "./", "../", "~")):
        return address
    folder = expanduser(address)
    try:
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            build(folder, branch)
    except OSError as error:
        raise SyncFailed(address, str(error)) from error
    return str(folder)


Write = Callable[[str, str | None, str, Change], int]
"""Puts a merged text into the file of that path where the expected text (None: no file) still
stands, from any thread; returns the number of the version."""

Hides = Callable[[str, str], bool]
"""Whether a line of the file of that path was forgotten here, and is not taken over."""


def sync(store: GitStore, address: str, write: Write, hides: Hides) -> SyncResult:
    """Fetch, merge and push the versions of a store. Blocks. Raises `SyncFailed`, and what `write`
    raises."""
    repository, conflicts = store.repository, list[str]()
    with store.sync_lock():
        with store.locked():
            repository.create()
            paths = (path for version in store.versions() for path in version.paths)
            for prefix in sorted({scope_of(path) or "" for path in paths} | {""}):
                store.record_hand_edits(prefix)
            branch = repository.branch
        address = _resolved(address.strip(), branch)
        tips = fetch(address, repository.path)
        with store.locked():
            own = _own_branch(store, branch, tips)
            others = {device: tip for device, tip in sorted(tips.items()) if device != own}
            ours = _texts(repository, repository.tip())
            merged = dict(ours)
            for device, tip in others.items():
                base = _texts(repository, _base(store, device, tip, own))
                for path, text in sorted(_texts(repository, tip).items()):
                    mine = merged.get(path, "")
                    theirs = _without_forgotten(path, text, mine, hides)
                    result = merge(base.get(path, ""), mine, theirs)
                    if result.text != mine:
                        merged[path] = result.text
                        conflicts += [f"{path}: {conflict}" for conflict in result.conflicts]
            numbers_there = {device: _number(repository, tip) for device, tip in others.items()}
        changed = {path: text for path, text in merged.items() if text != ours.get(path, "")}
        numbers = list[int]()
        for path, text in changed.items():
            # What is merged is recorded last: a sync that is cut short merges again.
            merged_now = numbers_there if path == next(reversed(changed)) else {}
            change = Change("sync", "what another device learned", merged=merged_now)
            numbers.append(write(path, ours.get(path), text, change))
        with store.locked():
            for device, tip in others.items():
                repository.set_tip(tip, device)
            tip = repository.tip()
        if tip:
            _push(address, repository.path, own, tip)
    return SyncResult(tuple(numbers), tuple(others), tuple(conflicts))


def _own_branch(store: GitStore, branch: str, tips: Mapping[str, str]) -> str:
    """The branch to push. Where the one there is of a twin, made of a copy or a backup of this
    home, that is another device from now on, and this one gets a new name."""
    if branch not in tips:
        return branch
    repository, ours = store.repository, store.versions()
    there, number = repository.commit(tips[branch]), _number(repository, tips[branch])
    if 0 < number <= len(ours) and ours[number - 1].when == there.when:
        return branch  # this device's own; after erasing with another id
    own = new_branch()
    repository.set_tip(repository.tip(), own)
    repository.write_file("HEAD", f"ref: refs/heads/{own}\n".encode())
    return own


def _base(store: GitStore, device: str, tip: str, own: str) -> str:
    """The commit of the last state that both sides know, empty for none."""
    repository, versions = store.repository, store.versions()
    theirs = [(one.id, CommitMessage.parse(one.message)) for one in repository.chain(tip)]
    merges_there = (said.change.merged for _, said in theirs)
    merged_there = next((merges[own] for merges in merges_there if own in merges), 0)
    merged_here = max((one.number for one in versions if device in one.change.merged), default=0)
    if 0 < merged_there <= len(versions) and merged_there >= merged_here:
        return versions[merged_there - 1].commit
    seen, there = repository.tip(device), {commit for commit, _ in theirs}
    ours = [version.commit for version in versions]
    if seen in ours and seen not in there:  # a twin's, whom we have not met: ours alone
        return next((commit for commit in reversed(ours) if commit in there), "")
    if seen or not merged_here:
        return seen
    # An erasure took our copy of its branch; which of its versions we merged is still said.
    upto = versions[merged_here - 1].change.merged[device]
    return next((commit for commit, said in theirs if said.number == upto), "")


def _without_forgotten(path: str, theirs: str, mine: str, hides: Hides) -> str:
    """Their text without the lines that were forgotten here."""
    known = {"", *split(mine)}
    lines = ((line, line.strip()) for line in theirs.split("\n"))
    return "\n".join(raw for raw, line in lines if line in known or not hides(path, line))


def _number(repository: Repository, commit: str) -> int:
    return CommitMessage.parse(repository.commit(commit).message).number


def _texts(repository: Repository, commit: str) -> dict[str, str]:
    """The texts of a commit; another device has no say in any file but the tracked ones."""
    if not commit:
        return {}
    files = repository.changed("", repository.commit(commit).tree)
    tracked = {path: blob for path, blob in files if scope_of(path) is not None}
    contents = {path: repository.content(blob) for path, blob in tracked.items()}
    return {path: text_of(text) for path, text in contents.items() if len(text) <= _LIMIT}
