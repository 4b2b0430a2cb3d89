"""The conversations of the other home: which files hold them, and whose each is.

Over its versions the other program kept them in `sessions/` of the home, in `sessions/` of the
workspace, and in a folder of the home that is named after the workspace. Where several files say
that they are the same conversation, the one used last is it, and the others stay among the
originals. What was said to this nanobot in their home, before the import, comes after what was said
to the other program.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import BinaryIO

from nanobot.bus.events import TERMINAL
from nanobot.importing.gathering import WORKSPACE_ID, Gathering
from nanobot.importing.people import OURS, UNIFIED, People, is_group, key_of
from nanobot.importing.sessions import Conversation, Head, head_of, lines_of
from nanobot.importing.source import Found, Root, reason
from nanobot.session.records import SUFFIX, JsonValue, stem_of

_CODED = re.compile(r"sessions/([0-9a-f]{32})/[^/]+")
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file that may hold a conversation, and what it says of itself."""

    found: Found
    theirs: str
    head: Head

    @property
    def rank(self) -> tuple[bool, datetime]:
        """The best one of a conversation has the highest."""
        return self.theirs != UNIFIED, self.head.updated or _NEVER


class Talks:
    """`media` are the new names of files that came with messages."""

    def __init__(self, files: Gathering, people: People, media: Mapping[str, str]) -> None:
        self._files, self._people, self._media = files, people, media
        self._keys: dict[str, str] = {}

    def run(self) -> None:
        """Take them all."""
        found = sorted(self._candidates(), key=lambda one: one.rank, reverse=True)
        theirs = {key_of(one.theirs) for one in found if not one.head.ours}
        later = {
            key_of(one.theirs): one
            for one in found
            if one.head.ours and key_of(one.theirs) in theirs
        }
        for candidate in found:
            if candidate in later.values():
                continue
            key = self._key(candidate)
            if not key:
                note = "what the other program said to itself"
                self._files.keep("conversations", candidate.found, note)
            elif key in self._keys:
                note = f"an older file of the same conversation as {self._keys[key]}"
                self._files.keep("conversations", candidate.found, note)
            else:
                self._convert(candidate, key, later.pop(key, None))
        for rest in later.values():  # what it would have gone on from could not be read
            self._files.keep("conversations", rest.found, "nothing it goes on from")

    @property
    def groups(self) -> list[tuple[str, str]]:
        """Groups that there are conversations with: channel and id."""
        parts = [key.split(":") for key in self._keys if is_group(key)]
        return list(dict.fromkeys((channel, chat) for channel, chat, *_ in parts))

    def _candidates(self) -> Iterator[_Candidate]:
        coded = self._coded_folder()
        roots: tuple[Root, Root] = ("home", "workspace")
        for found in [found for root in roots for found in self._files.below(root, "sessions")]:
            folder, _, name = found.path.rpartition("/")
            if not (found.kind == "file" and name.endswith(SUFFIX)) or folder not in (
                "sessions",
                coded,
            ):
                continue
            try:
                with self._files.opened(found) as file:
                    head = head_of(lines_of(file)) or Head()
            except OSError as error:
                self._files.leave("conversations", found, f"it cannot be read: {reason(error)}")
                continue
            stem = name.removesuffix(SUFFIX)
            named = _decoded(stem) if folder == coded else stem.replace("_", ":", 1)
            yield _Candidate(found, head.key or named, head)

    def _coded_folder(self) -> str:
        """The folder of this workspace's conversations: by its mark, or the only one there is."""
        found = (_CODED.fullmatch(one.path) for one in self._files.below("home", "sessions"))
        names = {match[1] for match in found if match}
        try:
            mark = self._files.read(self._files.get("workspace", WORKSPACE_ID), 1_000)
        except OSError:
            mark = b""
        name = mark.decode("ascii", "replace").strip()
        if name not in names and len(names) == 1:
            (name,) = names
        return f"sessions/{name}" if name in names else ""

    def _key(self, candidate: _Candidate) -> str:
        """The key here. One conversation for all channels goes on where it was held last, if only
        the owner spoke in it and reads there."""
        routed = key_of(candidate.head.route) if candidate.theirs == UNIFIED else ""
        goes_on = "unified" in self._people.mine and self._people.is_private(routed)
        return routed if goes_on and routed not in self._keys else key_of(candidate.theirs)

    def _convert(self, candidate: _Candidate, key: str, later: _Candidate | None) -> None:
        """Make it ours, and what was said `later`, to us, its end."""
        found = candidate.found
        conversation = Conversation(key, candidate.head, self._media, self._metadata(key))
        target = f"sessions/{stem_of(key)}{SUFFIX}"

        def lines(file: BinaryIO) -> Iterator[bytes]:
            with self._files.opened(later.found) if later else nullcontext() as more:
                rest = lines_of(more) if more else ()
                yield from conversation.lines(chain(lines_of(file), rest))

        if not self._files.stream("conversations", found, target, lines):
            if later:
                self._convert(later, key, None)
            return
        if later:
            note = f"what was said to this nanobot comes after {found.path}"
            self._files.convert("conversations", later.found, target, note)
        if not conversation.messages:
            self._files.new.remove(target)
            self._files.keep("conversations", found, "no message can be read in it")
            return
        self._keys[key] = found.path
        broken = conversation.broken
        notes = [f"{broken} broken lines are only in the original"] if broken else []
        if candidate.head.unfinished:
            notes.append("a turn that was under way does not go on")
        count = conversation.messages
        self._files.convert("conversations", found, target, "; ".join(notes), count)

    def _metadata(self, key: str) -> Mapping[str, JsonValue]:
        """Whose it is, where the key does not tell."""
        channel = key.partition(":")[0]
        if is_group(key):
            return {"group": True}
        if channel in (TERMINAL, *OURS) or channel not in self._people.mine:
            return {}
        return {"scope": "owner"}


def _decoded(stem: str) -> str:
    try:
        return base64.urlsafe_b64decode(stem + "=" * (-len(stem) % 4)).decode()
    except (binascii.Error, ValueError):
        return stem.replace("_", ":", 1)
