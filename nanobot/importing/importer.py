"""Import of the other home, part by part.

Invariants:

- The other home is only read, and the report (`imported/<date>/report.md`) names every file of it.
  Files that nanobot has no place for stay there.
- A broken part does not prevent the import of the others.
- The new home only appears when it is complete: it is made in a hidden folder next to its place. If
  both have the same path, the other home is renamed at the very end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import count
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nanobot.agent.media import media_name
from nanobot.bus.events import TERMINAL, Address
from nanobot.clock import Clock
from nanobot.config import command_for
from nanobot.cron.heartbeat import has_tasks
from nanobot.cron.job import Job, JobPlace, address_of, draft_job, encode_jobs
from nanobot.cron.schedule import Every
from nanobot.errors import NanobotError, StorageError
from nanobot.importing.files import (
    ASIDE,
    CONFIG,
    ImportReport,
    Kind,
    Source,
    Transfer,
    locate,
)
from nanobot.importing.foreign import (
    OURS,
    Fields,
    NotJson,
    People,
    Secrets,
    is_group,
    key_of,
    people_of,
)
from nanobot.importing.sessions import import_conversations
from nanobot.importing.settings import Conversion, render_config
from nanobot.io import sync_folder
from nanobot.memory.documents import RULES
from nanobot.memory.history import STAMP, HistoryEntry, decode, encode
from nanobot.memory.scopes import Scopes
from nanobot.messages import MEDIA
from nanobot.session.records import is_internal
from nanobot.upkeep.restore import STAGING, staging_in

_SYSTEM = ("dream", "heartbeat")  # jobs that nanobot does by itself


def convert_job(id: str, given: Fields, people: People, now: datetime) -> Job:
    """Convert an entry of a jobs.json. Raise `NanobotError` if it cannot become a job."""
    payload, when = given.inner("payload"), given.inner("schedule")
    if payload.text("kind") == "system_event" or id in _SYSTEM:
        raise NanobotError("nanobot does this automatically")
    address = convert_address(payload)
    is_shared = {"group": True} if is_group(address.key) else {}
    scope = Scopes(people.is_owner).of_session(address.key, is_shared)
    job = draft_job(
        convert_schedule(when),
        payload.text("message"),
        JobPlace(address, scope, ""),
        now,
        name=given.text("name"),
        zone=when.text("tz"),
    )
    due = parse_time(given.inner("state").number("next_run_at_ms"))
    if isinstance(job.schedule, Every) and due is not None and due > now:
        job = replace(job, after=due - job.schedule.interval)  # keeps its next run
    return replace(
        job,
        id=id,
        created_at=parse_time(given.number("created_at_ms")) or job.created_at,
        enabled=given.flag("enabled", otherwise=True),
    )


def convert_schedule(given: Fields) -> str:
    """Return the schedule in the form that `parse` reads."""
    kind = given.text("kind")
    if kind == "every":
        seconds = max(0, given.number("every_ms") or 0) // 1_000
        return f"every {seconds}s" if seconds % 60 else f"every {seconds // 60}m"
    if kind == "at":
        due = parse_time(given.number("at_ms"))
        return f"at {due.isoformat()}" if due else "at"
    return given.text("expr")


def convert_address(payload: Fields) -> Address:
    """Return the address of its messages, by default the terminal."""
    channel = payload.text("origin_channel") or payload.text("channel")
    chat = payload.text("origin_chat_id") or payload.text("to")
    address = key_of(payload.text("session_key"))
    if address.partition(":")[0] != channel or is_internal(address):
        address = key_of(f"{channel}:{chat}") if channel and chat else ""
    return address_of(address or f"{TERMINAL}:direct")


def parse_time(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)  # any year
    except OverflowError:
        return None


_LARGEST_MEDIA = 20 << 20  # bytes
_LARGEST_HISTORY = 64 << 20  # bytes of a file that is held in memory

_HISTORY = ("history.jsonl", "HISTORY.md", ".dream_cursor")
_NEW_HISTORY = "workspace/memory/history.jsonl"
_ASIDE = tuple(
    f"workspace/{name}/"
    for name in (".git", ".gitignore", ".nanobot", "sessions", "cron", "people", "groups")
)
"""Names with another meaning in a workspace here, or none."""

_HEARTBEAT = "workspace/HEARTBEAT.md"
_NO_TASKS = """
This file is checked every 30 minutes by your nanobot agent.
Add tasks below that you want the agent to work on periodically.
If this file has no tasks (only headers and comments), the agent will skip the heartbeat.
"""
"""The other program's own lines. As tasks, they would cause a model call at each heartbeat."""


class Import:
    """An import. `owners` are accounts of the owner (`telegram:123`), and `now` is in the machine's
    zone. Without a `folder` nothing is written."""

    def __init__(
        self,
        source: Source,
        target: Path,
        folder: Path | None,
        now: datetime,
        owners: Sequence[str],
    ) -> None:
        self._source, self._now, self._owners = source, now, owners
        file = f"imported/{now:%Y-%m-%d}/report.md"
        self._report = ImportReport(str(source.home), str(target), file, command_for(target))
        self._files = Transfer(source, folder, self._report)

    def run(self) -> ImportReport:
        """Import everything. Raise `StorageError` if the new home cannot be written."""
        people = people_of(self._source.config, self._read_pairing(), self._owners)
        groups = import_conversations(self._files, people, self._import_media())
        self._import_settings(people, groups)
        self._import_memory()
        self._import_jobs(people)
        self._import_workspace()
        self._advise(people)
        self._files.write(self._report.file, [self._report.as_markdown()])
        return self._report

    def _read_pairing(self) -> Fields:
        found = self._files.get("home/pairing.json")
        try:
            pairing = Fields.read(self._files.read(found))
        except NotJson:
            return Fields({})
        self._files.record("settings", found, "converted", "config.yaml")
        return pairing

    def _import_media(self) -> dict[str, str]:
        """Return the new paths in the home by the old ones below `media/`."""
        names: dict[str, str] = {}
        for found in self._files.below("home/media/"):
            data = self._files.read(found, _LARGEST_MEDIA)
            if not data:
                self._files.record(
                    "media", found, "left", why="it is too large, empty, or unreadable"
                )
                continue
            target = f"{MEDIA}/{media_name(data, '', found.path)}"
            if target not in names.values():
                self._files.write(target, [data])
            names[found.path.removeprefix("home/media/")] = target
            self._files.record("media", found, "taken", target)
        return names

    def _import_settings(self, people: People, groups: Sequence[tuple[str, str]]) -> None:
        problem, report, config = self._source.config_problem, self._report, self._source.config
        secrets, tree = Secrets(), {}
        if problem:
            report.add_todo(
                f"{CONFIG} can't be used: {problem}. Set up nanobot with `nanobot onboard`."
            )
        else:
            tree = Conversion(config, people, groups, secrets, report).tree()
            found = self._files.get(f"home/{CONFIG}")
            self._files.record("settings", found, "converted", "config.yaml")
        self._files.write("config.yaml", [render_config(tree, secrets, report).encode()])
        if text := secrets.as_text():
            self._files.write("secrets.env", [text.encode()])
        for name in secrets.awaited:
            if name not in os.environ:
                report.add_todo(f"Set the variable {name} in the environment or in secrets.env.")

    def _import_memory(self) -> None:
        """Copy the history: nanobot converts lines of the other program at its start. If there is
        only a HISTORY.md, its paragraphs become entries that Dream has read, because their facts
        were added to MEMORY.md at the same time."""
        files, zone = self._files, self._now.tzinfo
        found, text, cursor = (files.get(f"workspace/memory/{name}") for name in _HISTORY)
        content = files.read(found, _LARGEST_HISTORY)
        if content.strip():
            lines = (drop_message_numbers(line, zone) for line in content.splitlines(keepends=True))
            files.write(_NEW_HISTORY, lines)
            files.record("memory", found, "converted", _NEW_HISTORY)
            return
        for empty in (found, cursor):
            files.record("memory", empty, "left")
        told = files.read(text, _LARGEST_HISTORY).decode("utf-8", "replace")
        entries = list(read_entries(told, self._now.replace(microsecond=0)))
        if entries:
            files.write(_NEW_HISTORY, map(encode, entries))
            files.write("workspace/memory/.dream_cursor", [b"%d\n" % len(entries)])

    def _import_jobs(self, people: People) -> None:
        stores = (self._files.get(f"{root}/cron/jobs.json") for root in ("workspace", "home"))
        store = next(filter(None, stores), None)
        if store is None:
            return
        try:
            entries = Fields.read(self._files.read(store)).items("jobs")
        except NotJson as error:
            self._report.add_change(f"{store.path} has no readable jobs: {error}.")
            return
        jobs = []
        by_id = {f.text("id") or f"#{n}": f for n, f in enumerate(map(Fields, entries))}
        for id, entry in by_id.items():
            try:
                job = convert_job(id, entry, people, self._now)
            except NanobotError as error:
                name = entry.text("name") or id
                self._report.add_change(f"The job “{name}” was not imported: {error}.")
                continue
            if job.channel not in (TERMINAL, *OURS):
                job = replace(job, enabled=False)
                self._report.add_change(
                    f"The job “{job.name}” is paused, because there is no channel {job.channel}."
                )
            jobs.append(job)
        target = ""
        if jobs:
            target = "state/jobs.json"
            self._files.write(target, [encode_jobs(jobs)])
        self._files.record("jobs", store, "converted", target, count=len(jobs))

    def _import_workspace(self) -> None:
        """Copy the rest of the workspace, except names with another meaning here."""
        for found in self._files.below("workspace/"):
            if found.problem or f"{found.path}/".startswith(_ASIDE):
                self._files.record("other", found, "left")
            elif found.path == _HEARTBEAT and not has_tasks(
                self._files.read(found).decode("utf-8", "replace"), _NO_TASKS
            ):
                self._files.record("memory", found, "left", why="it has no tasks")
            else:
                self._files.copy(kind_of(found.path), found, found.path)
        for found in self._files.below("home/"):
            self._files.record("other", found, "left")

    def _advise(self, people: People) -> None:
        report = self._report
        taken = {item.target for item in report.items}
        if self._source.workspace is None:
            report.add_change(
                "There is no workspace, so no memory, skills, or files were imported."
            )
        if rules := sorted(name for name in RULES if f"workspace/{name}" in taken):
            report.add_todo(
                f"Review the instructions in workspace/ ({', '.join(rules)}), which may describe "
                "the other program. If you delete a file, nanobot creates its default version."
            )
        if skills := sorted({t.split("/")[2] for t in taken if t.startswith("workspace/skills/")}):
            report.add_todo(
                f"The imported skills ({', '.join(skills[:10])}) are not enabled yet. Review "
                "them with `nanobot skills list`, then enable each with `nanobot skills enable "
                "NAME`."
            )
        self._advise_owner(people)

    def _advise_owner(self, people: People) -> None:
        unowned = [n for n in OURS if people.allowed.get(n) and not people.owners.get(n)]
        if unowned and not self._owners:
            self._report.add_todo(
                "Choose the owner, the only person with access to memory. On "
                f"{' and '.join(unowned)}, several people (or none) have access, so nanobot can't "
                "tell who the owner is. Import again with --owner, such as --owner telegram:12345, "
                "or set `owner:` "
                "in config.yaml."
            )


def read_entries(text: str, when: datetime) -> Iterator[HistoryEntry]:
    """Yield the paragraphs of a HISTORY.md without separate headings, each with the time at its
    beginning, or else `when`."""
    pieces = (piece.strip() for piece in re.split(r"\n\s*\n", text.replace("\r\n", "\n")))
    told = (piece for piece in pieces if piece and ("\n" in piece or not piece.startswith("#")))
    for number, piece in enumerate(told, 1):
        time, stamp = when, STAMP.match(piece)
        if stamp:
            with suppress(ValueError):  # an invalid date
                time = datetime.fromisoformat(f"{stamp[1]}T{stamp[2]}").replace(tzinfo=when.tzinfo)
        yield HistoryEntry(number, time, "import", "", 0, 0, piece)


def drop_message_numbers(line: bytes, zone: tzinfo | None) -> bytes:
    """Return a line of a history.jsonl. If this nanobot wrote it, running in that home before the
    import, drop its message numbers and operations, which refer to files that are not imported."""
    ours = decode(line, zone)
    return encode(replace(ours, type="import", first=0, last=0, operations=())) if ours else line


def kind_of(path: str) -> Kind:
    within = path.removeprefix("workspace/")
    if within in RULES or within.startswith("memory/"):
        return "memory"
    return "skills" if within.startswith("skills/") else "workspace files"


class ImportPlan(Struct, frozen=True):
    """A possible import. `aside` is the new path of the other home, None if it stays. `report` is
    the expected result."""

    source: Source
    target: Path
    aside: Path | None
    owners: Sequence[str]
    report: ImportReport


def prepare(
    source: Path, target: Path, workspace: Path | None, owners: Sequence[str], clock: Clock
) -> ImportPlan:
    """Read everything and write nothing. Raise `NanobotError` if the import is impossible."""
    for owner in owners:
        channel, _, id = owner.partition(":")
        if not channel or not id.strip():
            raise NanobotError(f"{owner!r} is not an account", hint="Write it like telegram:12345.")
    found = locate(source, workspace, target)
    place, aside = target.resolve(), None
    if place == found.home:
        base = f"{place.name}{ASIDE}"
        names = (base if number == 1 else f"{base}-{number}" for number in count(1))
        aside = next(path for name in names if not (path := place.with_name(name)).exists())
    else:
        check_homes(found.home, place)
    report = Import(found, place, None, clock.now(), owners).run()
    return ImportPlan(found, place, aside, owners, report)


def check_homes(home: Path, target: Path) -> None:
    """Raise `NanobotError` if `home` cannot be imported into `target`."""
    if target.is_relative_to(home) or home.is_relative_to(target):
        raise NanobotError(
            f"one of the folders {target} and {home} contains the other",
            hint="Choose another home with --to.",
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise NanobotError(
            f"{target} is not empty, and `nanobot import` never overwrites files",
            hint="Choose a new home with --to, or move this one away first.",
        )


def carry_out(plan: ImportPlan, clock: Clock) -> ImportReport:
    """Run the import. Raise `NanobotError` and restore both homes if it fails."""
    target, aside = plan.target, plan.aside
    try:
        with staging_in(target.parent, f".{target.name}{STAGING}") as folder:
            report = Import(plan.source, target, folder, clock.now(), plan.owners).run()
            os.sync()  # thousands of files must be on disk before the rename
            if aside:
                target.rename(aside)
            try:
                folder.rename(target)
            except OSError:
                if aside:
                    aside.rename(target)
                raise
            sync_folder(target.parent)
    except OSError as error:
        raise StorageError.of(error.filename or target, error) from error
    report.done = True
    return report
