"""`memory sync`: one memory on several devices, through a git repository that all of them can
reach.

For each scope, every device pushes only its own branch, so nothing there is overwritten. Branches
of other scopes than the owner's are below the scope's name. A device fetches the others' branches
and merges their newest texts into its files, three-way and line by line. A merge without changes
makes no version. Writers never wait for the network.

The base of a merge is the last state that both devices know: our version that the other device
merged, by the number in its newest merge, or else its state at our last sync, to which our copy of
its branch points. A branch has no commits of other devices, so erasing one device's history is
complete on that device."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, unquote

from msgspec import Struct, field
from msgspec.structs import replace

from nanobot import programs
from nanobot.errors import NanobotError
from nanobot.memory.documents import text_of
from nanobot.memory.git import build, new_branch
from nanobot.memory.gitstore import LIMIT, GitStore
from nanobot.memory.line_changes import merge, split
from nanobot.memory.version import Change, CommitMessage, Version, scope_of
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
    *("-oBatchMode=yes", f"-oConnectTimeout={_CONNECT_SECONDS}"),
    *("-oServerAliveInterval=10", "-oServerAliveCountMax=3"),
)
_SCHEMES = ("ssh://", "git+ssh://", "http://", "https://", "file://")
_DEVICE = r"refs/heads/(|[^/]+/[^/]+/)(device-[0-9a-f]{8})"
_HINT = (
    "Nothing was lost. Check the network and the address. The address must be the folder, ssh:// "
    "URL, or https:// URL of a bare git repository. For https, add a token: "
    "https://user:token@host/… Then sync again."
)


class SyncFailed(NanobotError):
    """The other repository is unusable. Nothing was lost here or there."""

    def __init__(self, address: str, reason: str, hint: str = _HINT) -> None:
        text = f"cannot sync with {address}: {reason}"
        super().__init__(re.sub(r"//[^/@\s]*@", "//", text), hint=hint)  # without the password


class SyncResult(Struct, frozen=True):
    """The result of a sync: the versions it made here, and the other devices.

    `others` has the versions of the other scopes. `conflicts` has a sentence for each line that two
    devices changed. Both wordings were kept."""

    numbers: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    others: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def build_ssh_command(seconds: float) -> str:
    """Return the command that starts ssh in `/` with few variables, and ends it after some seconds.
    dulwich would start it in our folder, with all variables."""
    variables = programs.environment("SSH_AUTH_SOCK|SSH_AGENT_PID").items()
    given = (f"{name}={value}" for name, value in variables)
    program = programs.program
    apart = (program("sh"), "-c", 'cd / && exec "$@"', "sh", program("env"), "-i", *given)
    return shlex.join((*apart, program("timeout"), str(seconds), program("ssh"), *_SSH))


@contextmanager
def open_remote(
    address: str, repository: Path, seconds: float = _TRANSFER_SECONDS
) -> Iterator[tuple[GitClient, str, Repo]]:
    """Open the repository at `address`, a folder or an ssh or https address: yield a client for it,
    its path there, and our own repository.

    Nothing is asked on a terminal: ssh uses its keys and agent, https the user and token in the
    address. ssh is ended after `seconds`. Failures within are raised as `SyncFailed`."""
    from dulwich.client import (
        HTTPProxyUnauthorized,
        HTTPUnauthorized,
        SSHGitClient,
        StrangeHostname,
        TransportNotAllowed,
        default_urllib3_manager,
        get_transport_and_path,
    )
    from dulwich.errors import GitProtocolError, NotGitRepository
    from dulwich.repo import Repo
    from urllib3.exceptions import HTTPError

    pool = cast("PoolManager", default_urllib3_manager(None, timeout=_CONNECT_SECONDS))
    refused = (HTTPProxyUnauthorized, HTTPUnauthorized, HTTPError)
    unfit = (StrangeHostname, TransportNotAllowed)
    try:
        with closing(Repo(str(repository))) as ours:
            client, path = get_transport_and_path(address, pool_manager=pool)
            if isinstance(client, SSHGitClient):
                client.ssh_command = build_ssh_command(seconds)
            yield client, path, ours
    except (GitProtocolError, NotGitRepository, OSError, ValueError, *refused, *unfit) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise SyncFailed(address, reason) from error


def fetch(
    address: str, repository: Path, prefix: str = "", seconds: float = _TRANSFER_SECONDS
) -> dict[str, dict[str, str]]:
    """Fetch only the branches of the scope with this prefix, of all devices, into the repository
    here. Return the tips of all scopes there, by prefix and device."""
    found: dict[str, dict[str, str]] = {}
    with open_remote(address, repository, seconds) as (client, path, ours):

        def select(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
            del depth
            tips: set[ObjectID] = set()
            for ref, tip in refs.items():
                match = re.fullmatch(_DEVICE, ref.decode("utf-8", "replace"))
                # A ref allows fewer characters than a scope's name, so the name is quoted.
                if match and scope_of(f"{(scope := unquote(match[1]))}USER.md") == scope:
                    found.setdefault(scope, {})[match[2]] = tip.decode()
                    tips |= {tip} if scope == prefix else set()
            return [tip for tip in tips if tip not in ours.object_store]

        client.fetch(path, ours, select)
    return found


def push_branch(address: str, repository: Path, branch: str, tip: str) -> None:
    """Set this device's branch there to the commit `tip`."""
    from dulwich.objects import ObjectID
    from dulwich.refs import Ref

    wanted = {Ref(f"refs/heads/{branch}".encode()): ObjectID(tip.encode())}
    with open_remote(address, repository) as (client, path, ours):
        pack = cast("GeneratePackDataFunc", ours.generate_pack_data)
        result = client.send_pack(path.encode(), lambda _: wanted, pack)
    if refused := [reason for reason in (result.ref_status or {}).values() if reason]:
        raise SyncFailed(
            address,
            f"it rejected this device's branch ({refused[0]})",
            "Allow non-fast-forward pushes there. They are needed after `/forget --erase`.",
        )


def resolve_address(address: str) -> str:
    """Return the address for the client. A missing or empty folder becomes a repository."""
    if "://" in address and not address.startswith(_SCHEMES):
        raise SyncFailed(address, "unknown kind of address")
    if ":" in address and not address.startswith(("/", "./", "../", "~")):
        return address
    folder = expanduser(address)
    try:
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            build(folder, "main")
    except OSError as error:
        raise SyncFailed(address, str(error)) from error
    return str(folder)


Tips = Mapping[str, str]
"""The newest commit of each device."""

Write = Callable[[str, str | None, str, Change], int]
"""Writes a merged text to a path if the file still has the expected text (None: no file), from any
thread. Returns the version's number."""

Hides = Callable[[str, str], bool]
"""Returns True if a line of a path's file was forgotten here and must not be merged."""


def sync(
    store_of: Callable[[str], GitStore],
    prefixes: Iterable[str],
    address: str,
    write: Write,
    hides: Hides,
) -> SyncResult:
    """Fetch, merge and push the versions of the owner, of the scopes with these prefixes, and of
    scopes that only the other side has. Blocks. Raise `SyncFailed`, and errors of `write`."""
    address = resolve_address(address.strip())
    result, there = sync_scope(store_of(""), address, None, write, hides)
    others, conflicts = dict[str, tuple[int, ...]](), list(result.conflicts)
    for prefix in sorted({*prefixes, *there} - {""}):
        found, _ = sync_scope(store_of(prefix), address, there.get(prefix, {}), write, hides)
        conflicts += found.conflicts
        if found.numbers:
            others[prefix.rstrip("/")] = found.numbers
    return replace(result, others=others, conflicts=tuple(conflicts))


def sync_scope(
    store: GitStore, address: str, known: Tips | None, write: Write, hides: Hides
) -> tuple[SyncResult, Mapping[str, Tips]]:
    """Sync one scope. Return the result and all branches of the other side, which is not contacted
    if its `known` branches are all here."""
    repository, conflicts = store.repository, list[str]()
    with store.sync_lock():
        with store.acquire():
            repository.create()
            store.record_hand_edits()
            if known == {name: repository.tip(name) for name in repository.branches()}:
                return SyncResult(), {}
        there = fetch(address, repository.path, store.prefix)
        tips = there.get(store.prefix, {})
        with store.acquire():
            own = choose_branch(store, tips)
            others = {device: tip for device, tip in sorted(tips.items()) if device != own}
            ours = read_texts(store, repository.tip())
            merged = dict(ours)
            for device, tip in others.items():
                conflicts += merge_branch(store, device, tip, merged, hides)
            versions = {
                name: CommitMessage.parse(repository.commit(tip).message).number
                for name, tip in others.items()
            }
        numbers = write_merged(write, ours, merged, versions)
        with store.acquire():
            for device, tip in others.items():
                repository.set_tip(tip, device)
            tip = repository.tip()
        if tip:
            folder = quote(store.prefix).replace(".", "%2E")
            push_branch(address, repository.path, f"{folder}{own}", tip)
    return SyncResult(tuple(numbers), tuple(others), tuple(conflicts)), there


def write_merged(
    write: Write, ours: Mapping[str, str], merged: Mapping[str, str], known: Mapping[str, int]
) -> list[int]:
    """Write the changed texts. `known` are the versions of other devices in them."""
    changed = {path: text for path, text in merged.items() if text != ours.get(path, "")}
    numbers = list[int]()
    for path, text in changed.items():
        # The merge is recorded last, so that an aborted sync merges again.
        merged_now = known if path == next(reversed(changed)) else {}
        change = Change("sync", "changes from another device", merged=merged_now)
        numbers.append(write(path, ours.get(path), text, change))
    return numbers


def merge_branch(
    store: GitStore, device: str, tip: str, merged: dict[str, str], hides: Hides
) -> Iterator[str]:
    """Merge the texts of another device into `merged`, except for forgotten lines. Yield the
    conflicts."""
    base = read_texts(store, find_merge_base(store, device, tip))
    for path, text in sorted(read_texts(store, tip).items()):
        mine = merged.get(path, "")
        known, lines = {"", *split(mine)}, ((raw, raw.strip()) for raw in text.split("\n"))
        kept = (raw for raw, line in lines if line in known or not hides(path, line))
        result = merge(base.get(path, ""), mine, "\n".join(kept))
        merged[path] = result.text
        yield from (f"{path}: {conflict}" for conflict in result.conflicts)


def choose_branch(store: GitStore, tips: Tips) -> str:
    """Return the branch to push, with a new name if a twin of this device uses it."""
    repository = store.repository
    if (branch := repository.branch) in tips:
        there = repository.commit(tips[branch])
        same = (CommitMessage.parse(there.message).number, there.when)
        # A copy or a backup of this home is a twin. After erasing, our own commit has another id.
        if all((one.number, one.when) != same for one in store.versions()):
            repository.rename_branch(new_branch())
    return repository.branch


def find_merge_base(store: GitStore, device: str, tip: str) -> str:
    """Return the commit of the last state that both sides know, or "": our version that they
    merged, or their version that we have seen, if that is later. Twins have commits in common."""
    repository, versions = store.repository, store.versions()
    theirs = {one.id: CommitMessage.parse(one.message) for one in repository.chain(tip)}
    _, merged_there = find_newest_merge(theirs.values(), repository.branch)
    merging, merged_here = find_newest_merge(reversed(versions), device)
    ours = {one.number: one.commit for one in versions}
    if merged_there in ours and merging <= merged_there:
        return ours[merged_there]
    if seen := repository.tip(device):
        return seen
    for commit, said in theirs.items():
        # Erasing deleted our copy of their branch, but our version still names theirs.
        if commit in ours.values() or (said.number == merged_here and merging):
            return commit
    return ""


def find_newest_merge(
    newest_first: Iterable[Version | CommitMessage], device: str
) -> tuple[int, int]:
    """Return the numbers of the newest version that merged the other device's, and of the last one
    it merged. 0 and 0 for none."""
    for one in newest_first:
        if device in one.change.merged:
            return one.number, one.change.merged[device]
    return 0, 0


def read_texts(store: GitStore, commit: str) -> dict[str, str]:
    """Return the texts of the scope's tracked files after a commit."""
    files = store.repository.files(commit).items()
    contents = {
        path: store.repository.content(blob)
        for path, blob in files
        if scope_of(path) == store.prefix  # another device may change no other files
    }
    return {path: text_of(text) for path, text in contents.items() if len(text) <= LIMIT}
