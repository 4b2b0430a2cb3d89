"""The grammar of `nanobot backup …` and `nanobot restore`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nanobot.cli.grammar import add, add_json, home_of, words

if TYPE_CHECKING:
    from nanobot.cli.grammar import Commands

_BACKUP = """\
Put the whole home into one file, while nanobot runs or not.

  nanobot backup               into the folder of backups (backup.folder in config.yaml)
  nanobot backup FILE          into this file
  nanobot backup list          the backups in that folder
  nanobot backup verify FILE   unpack one, check all of it and open what a start would
  nanobot backup keygen FILE   make a key to encrypt backups with

Secrets and what signs in to WhatsApp are in it: encrypt it, or keep it where nobody else reads."""

_RESTORE = """\
Make a home out of a backup.

The home must not be there yet, or be empty; with --replace the one that is there is kept beside it
under another name. Stop the nanobot that the backup came from before you start the new one."""


def add_backup(commands: Commands) -> None:
    """`nanobot backup …` and `nanobot restore`."""
    backup = add(commands, "backup", "put the whole home into one file", _backup)
    backup.usage = "%(prog)s [-h] [FILE | list | verify FILE | keygen FILE] [options]"
    backup.description = _BACKUP
    backup.formatter_class = argparse.RawDescriptionHelpFormatter
    backup.add_argument(
        "what",
        nargs="?",
        type=words,
        metavar="WHAT",
        help="the file to make, or one of list, verify and keygen",
    )
    backup.add_argument(
        "file", nargs="?", type=words, metavar="FILE", help="the backup to verify, the key to make"
    )
    backup.add_argument(
        "--no-media", action="store_true", help="leave out files that were sent and received"
    )
    backup.add_argument(
        "--recipient",
        default="",
        metavar="AGE1…",
        help="encrypt it for this public key of age (default: backup.recipient in config.yaml)",
    )
    _add_identity(backup)
    add_json(backup)

    restore = add(commands, "restore", "make a home out of a backup", _restore)
    restore.description = _RESTORE
    restore.formatter_class = argparse.RawDescriptionHelpFormatter
    restore.add_argument("file", type=words, metavar="FILE", help="the backup")
    restore.add_argument(
        "--to", default="", metavar="HOME", help="where to (default: the home, as with --home)"
    )
    _add_identity(restore)
    restore.add_argument(
        "--replace", action="store_true", help="where a home is there already: keep it aside"
    )
    restore.add_argument(
        "--resume",
        action="store_true",
        help="go on with what was under way when it was made, even if that was finished since;"
        " otherwise `nanobot queue` has it",
    )
    add_json(restore)


def _add_identity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--identity", default="", metavar="FILE", help="the secret key of an encrypted backup"
    )


def _backup(options: argparse.Namespace) -> int:
    from nanobot.cli import backup

    home, what, file = home_of(options), options.what or "", options.file
    if what in ("verify", "keygen") and not file:
        raise backup.wrong_usage(f"`nanobot backup {what}` needs a FILE")
    if what == "verify":
        return backup.verify(file, options.identity, as_json=options.json)
    if what == "keygen":
        return backup.keygen(file, as_json=options.json)
    if file:
        raise backup.wrong_usage(f"what is {file!r} for?")
    if what == "list":
        return backup.list_backups(home, as_json=options.json)
    wishes = backup.Wishes(what, not options.no_media, options.recipient)
    return backup.back_up(home, wishes, as_json=options.json)


def _restore(options: argparse.Namespace) -> int:
    from nanobot.cli import restore

    wishes = restore.Wishes(
        options.file, options.to, options.identity, replace=options.replace, resume=options.resume
    )
    return restore.restore_home(home_of(options), wishes, as_json=options.json)
