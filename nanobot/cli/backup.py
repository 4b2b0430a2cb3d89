"""`nanobot backup …` and `nanobot restore`: the whole home in one file, and back.

The process that owns the home takes the snapshot, in a moment. This process packs it, which takes
longer, so the gateway's work and write permissions do not limit it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from shlex import quote
from typing import TYPE_CHECKING

from nanobot.cli.client import Data
from nanobot.cli.command import (
    Options,
    Parser,
    WrongUsage,
    log_errors_only,
    path_of,
    print_text,
    settings_of,
    size,
    table,
    words,
    zone_of,
)
from nanobot.cli.gateway import operate, own_home
from nanobot.config import command_for
from nanobot.errors import NanobotError
from nanobot.text import join_some
from nanobot_cli.text import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot.upkeep.archive import UnpackResult
    from nanobot.upkeep.restore import HomeContents

_SHOWN = 5
_EVERY = 0.2  # seconds between two updates of the progress line

_BACKUP = """\
Back up the whole home to one file. nanobot can keep running.

  nanobot backup               back up to the backup folder (backup.folder in config.yaml)
  nanobot backup FILE          back up to this file
  nanobot backup list          list the backups in the backup folder
  nanobot backup verify FILE   unpack a backup and check everything in it
  nanobot backup keygen FILE   create a key to encrypt backups

A backup contains your secrets and the WhatsApp session, so encrypt it or keep it private."""

_RESTORE = """\
Restore a home from a backup.

The home must not exist, or it must be empty. With --replace, the content of an existing home is
moved to its subfolder before-restore-TIME/. Stop the instance that made the backup before you start
the restored one."""

_RESUME = (
    "resume work that was unfinished at the time of the backup, even if it has been finished since "
    "(default: only list it in `nanobot queue list`)"
)


def add_backup(backup: Parser) -> None:
    backup.set_defaults(run=run_backup)
    backup.usage = "%(prog)s [-h] [FILE | list | verify FILE | keygen FILE] [options]"
    backup.description = _BACKUP
    backup.formatter_class = argparse.RawDescriptionHelpFormatter
    what = "the backup file to create, or one of list, verify, and keygen"
    backup.argument("what", "WHAT", what, nargs="?", type=words)
    backup.argument(
        "file", "FILE", "the backup to verify, or the key file to create", nargs="?", type=words
    )
    backup.flag("--no-media", "leave out sent and received files")
    whose = "encrypt the backup with this age public key (default: backup.recipient in config.yaml)"
    backup.option("--recipient", "AGE1…", whose)
    _add_identity(backup)
    backup.json()


def add_restore(restore: Parser) -> None:
    restore.set_defaults(run=restore_home)
    restore.description = _RESTORE
    restore.formatter_class = argparse.RawDescriptionHelpFormatter
    restore.argument("file", "FILE", "the backup file", type=words)
    restore.option("--to", "HOME", "the folder to restore to (default: nanobot's home)")
    _add_identity(restore)
    restore.flag("--replace", "move an existing home aside")
    restore.flag("--resume", _RESUME)
    restore.json()


def _add_identity(parser: Parser) -> None:
    parser.option("--identity", "FILE", "the secret key file, if the backup is encrypted")


def run_backup(options: Options) -> int:
    what, file = options.what or "", options.file
    run = {"list": show_backups, "verify": verify_backup, "keygen": create_identity}.get(
        what, create_backup
    )
    if bool(file) != (run in (verify_backup, create_identity)):
        said = f"unexpected argument {file!r}" if file else f"`nanobot backup {what}` needs a FILE"
        raise WrongUsage(said, hint="See `nanobot backup --help`.")
    return run(options)


def create_backup(options: Options) -> int:
    from msgspec.structs import replace

    from nanobot.app.services import order_of
    from nanobot.io import storage_errors
    from nanobot.upkeep import backups
    from nanobot.upkeep.snapshot import OPERATION, Snapshot

    home = options.home
    if not home.is_dir():
        raise NanobotError(
            f"there is no nanobot home in {home}", hint="Create one with `nanobot onboard`."
        )
    settings = settings_of(home)
    order = order_of(settings)
    recipient = options.recipient or order.recipient
    order = replace(order, media=order.media and not options.no_media, recipient=recipient)
    with backups.exclusive_backup(home):
        operate(home, OPERATION)
        with storage_errors(home):
            taken = Snapshot.load(home)
        folder = settings.backup.place(home)
        name = backups.backup_name(taken.made_at, recipient)
        target = path_of(options.what) if options.what else folder / name
        made = backups.make_backup(home, taken, target, order, _track_progress("packed"))
    data = {
        "file": str(made.path),
        "bytes": made.size,
        "files": made.files,
        "content_bytes": made.content,
        "encrypted": bool(recipient),
        "media": order.media,
        "live": taken.live,
        "left_out": list(made.left_out),
        "changed": list(made.changed),
    }
    return options.print_result(data, format_backup)


def show_backups(options: Options) -> int:
    from nanobot.upkeep import backups

    zone = zone_of(options.home)
    folder = settings_of(options.home).backup.place(options.home)
    stored = [backups.backup_data(one, zone) for one in backups.list_backups(folder)]
    return options.print_result({"folder": str(folder), "backups": stored}, format_backups)


def format_backups(data: Data) -> str:
    rows = []
    for one in data.records("backups"):
        encrypted = "encrypted" if one["encrypted"] else ""
        file = one.field("file", 4_096)
        rows.append((one.minute("made_at"), size(one.number("bytes")), encrypted, file))
    none = f"There are no backups in {data['folder']}.\n"
    return table(rows, "created", "size", "", "file") or none


def verify_backup(options: Options) -> int:
    """`nanobot backup verify FILE`. Return 1 if a home restored from it would not work."""
    from nanobot.clock import SystemClock
    from nanobot.upkeep.restore import verify

    log_errors_only()
    progress = _track_progress("checked")
    done = verify(_find_file(options.file), _find_identity(options), SystemClock(), progress)
    options.print_result(_data_of(done.unpacked, done.found), format_contents)
    return 1 if done.found.troubles else 0


def create_identity(options: Options) -> int:
    from nanobot.clock import SystemClock
    from nanobot.upkeep.archive import make_identity

    path = path_of(options.file)
    made_at = SystemClock().now().isoformat(timespec="seconds")
    public = make_identity(path, made_at)
    shown = (
        f"{public}\n\nThe secret key is in {path}. Move it to another machine, and keep a copy. "
        "Without it, you can't read your backups. Set `backup.recipient` in config.yaml to the "
        "public key above.\n"
    )
    return options.print_either({"file": str(path), "recipient": public}, lambda: shown)


def format_backup(data: Data) -> str:
    content, packed = size(data.number("content_bytes")), size(data.number("bytes"))
    text = f"{data['file']}\n{data.number('files'):,} files, {content} ({packed} compressed)"
    text += ", encrypted\n" if data["encrypted"] else "\n"
    what = "left out (unreadable, or a link to a file outside the home)"
    text += _join_paths(what, data.lines("left_out"))
    text += _join_paths("changed during the backup", data.lines("changed"))
    if not data["encrypted"]:
        text += (
            "The backup contains your secrets unencrypted, so keep it where only you can read it.\n"
        )
    return text


def _join_paths(what: str, paths: Sequence[str]) -> str:
    if not paths:
        return ""
    return f"{what}: {join_some([one_line(path, 100) for path in paths], _SHOWN)}\n"


def restore_home(options: Options) -> int:
    from nanobot.clock import SystemClock
    from nanobot.upkeep.backups import exclusive_backup
    from nanobot.upkeep.restore import expect_room, is_empty, is_half, restore

    log_errors_only()
    file = _find_file(options.file)
    home = path_of(options.to) if options.to else options.home
    expect_room(home, replace=options.replace)
    with ExitStack() as stack:
        if not (is_empty(home) or is_half(home)):  # no gateway starts on half a home
            stack.enter_context(own_home(home))
            # A backup is packed without that lock, and would mix two homes.
            stack.enter_context(exclusive_backup(home))
        restored = restore(
            file,
            home,
            _find_identity(options),
            SystemClock(),
            replace=options.replace,
            resume=options.resume,
            progress=_track_progress("unpacked"),
        )
    previous = str(restored.previous) if restored.previous else ""
    more = {"home": str(home), "set_aside": restored.set_aside, "previous": previous}
    data = {**_data_of(restored.unpacked, restored.found), **more}
    return options.print_result(data, lambda data: format_restore(home, data))


def _find_file(name: str) -> Path:
    file = path_of(name)
    if file.is_file():
        return file
    raise NanobotError(f"there is no file {file}", hint="`nanobot backup list` lists the backups.")


def _find_identity(options: Options) -> Path | None:
    """Return the secret key file from the options, or None. Warn if others can read it."""
    if not options.identity:
        return None
    path = path_of(options.identity)
    with suppress(OSError):
        if path.stat().st_mode & 0o077:
            told = f"warning: other users can read {path}. Run `chmod 600 {quote(str(path))}`.\n"
            print_text(told, sys.stderr)
    return path


def _data_of(unpacked: UnpackResult, found: HomeContents) -> dict[str, object]:
    """Return the content of a backup, for machines."""
    from msgspec.structs import asdict

    head = unpacked.head
    return {
        "made_at": head.made_at.isoformat(),
        "nanobot": head.nanobot,
        "live": head.live,
        "media": head.media,
        "left_out": list(head.left_out),
        "files": unpacked.files,
        "bytes": unpacked.size,
        **asdict(found),
    }


def format_contents(data: Data) -> str:
    """Describe the content of a backup, with its problems last."""
    hint = " (`nanobot queue list` shows them)" if data["failed"] else ""
    made = data.minute("made_at") + ("" if data["media"] else ", without media")
    how = "while it was running" if data["live"] else "while it was stopped"
    text = table((name, shown.format_map(data)) for name, shown in (
        ("created", made),
        ("by", f"nanobot {{nanobot}}, {how}"),
        ("files", f"{{files:,}} ({size(data.number('bytes'))}), all intact"),
        ("conversations", "{conversations:,} ({messages:,} messages)"),
        ("memory", "{versions:,} versions, {history:,} history entries"),
        ("jobs", "{jobs:,}"),
        ("in progress", "{waiting:,} messages or parts of replies"),
        ("failed", f"{{failed:,}}{hint}"),
    ))  # fmt: skip
    return text + "".join(f"problem: {one}\n" for one in data.lines("troubles"))


def format_restore(home: Path, data: Data) -> str:
    nanobot = command_for(home)
    text = f"Restored to {home}\n\n{format_contents(data)}\n"
    if data["previous"]:
        text += f"The previous home is in {data['previous']}.\n"
    if data["set_aside"]:
        text += (
            f"Some work in the backup was unfinished ({data['set_aside']}). It is not resumed, "
            f"because it may have been finished after the backup. To list it, run `{nanobot} "
            "queue list`.\n"
        )
    return text + (
        "Stop the instance that made the backup, because two running instances take each other's "
        f"messages. Then start this one with `{nanobot} gateway`. To see what else this machine "
        f"needs, run `{nanobot} doctor`.\n"
    )


def _track_progress(verb: str) -> Callable[[int, int], None]:
    """Return a callback that shows progress on one line of standard error, if that is a terminal.
    It is called with the bytes just done and the total."""
    count, following = 0, 0.0

    def step(more: int, total: int) -> None:
        nonlocal count, following
        count += more
        is_done = count >= total
        if sys.stderr.isatty() and (is_done or time.monotonic() >= following):
            following = time.monotonic() + _EVERY
            end = "\n" if is_done else ""
            sys.stderr.write(f"\r{verb} {size(count)} of {size(total)}\x1b[K{end}")
            sys.stderr.flush()

    return step
