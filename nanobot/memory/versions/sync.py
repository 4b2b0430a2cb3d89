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
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nanobot.errors import StorageError
from nanobot.memory.text.lines import merge
from nanobot.memory.versions.git import Commit, Repository
from nanobot.memory.versions.remote import Remote
from nanobot.memory.versions.trailers import Message
from nanobot.memory.versions.version import SyncResult, Versions, scope_of

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
