"""`nanobot backup …`: the whole home in one file.

The snapshot is taken by whoever owns the home, in a moment; packing it, which takes longer, is done
here, so that neither the gateway's work nor what it may write to limits it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.cli.admin import asked, put, to_json
from nanobot.cli.progress import Progress
from nanobot.cli.show import fitted, size, table
from nanobot.errors import NanobotError
from nanobot.tilde import expanded
from nanobot_cli.text import one_line

if TYPE_CHECKING:
    from nanobot.upkeep.backups import Made

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line says; empty is as configured. `media` False leaves them out."""

    file: str
    media: bool
    recipient: str


class WrongUsage(NanobotError):
    """A command line that makes no sense."""

    exit_code = 2


def wrong_usage(what: str) -> WrongUsage:
    """The error for it."""
    return WrongUsage(what, hint="`nanobot backup -h` shows how it is used.")


def back_up(home: Path, wishes: Wishes, *, as_json: bool) -> int:
    """`nanobot backup [FILE]`."""
    from nanobot.app.services import order_of
    from nanobot.config.load import load_settings
    from nanobot.upkeep import backups
    from nanobot.upkeep.packing import check_recipient
    from nanobot.upkeep.snapshot import OPERATION, Taken

    if not home.is_dir():
        raise NanobotError(f"there is no home in {home}", hint="`nanobot onboard` makes one.")
    settings = load_settings(home)
    order = order_of(settings)
    recipient = wishes.recipient or order.recipient
    order = replace(order, media=order.media and wishes.media, recipient=recipient)
    if recipient:
        check_recipient(recipient)
    with backups.alone(home), Progress("packed") as progress:
        taken = Taken.of_json(asked(home, OPERATION, {}))
        folder = backups.folder_of(home, settings.backup.folder)
        name = backups.name_for(taken.made_at, recipient)
        target = expanded(wishes.file).absolute() if wishes.file else folder / name
        made = backups.make(home, taken, target, order, progress)
    data = {
        "file": str(made.path),
        "bytes": made.size,
        "files": made.files,
        "content_bytes": made.content,
        "encrypted": bool(recipient),
        "media": order.media,
        "live": taken.live,
        "pause_milliseconds": round(taken.pause * 1000, 1),
        "left_out": list(made.left_out),
        "changed": list(made.changed),
    }
    return put(to_json(data) if as_json else fitted(_made_text(made, encrypted=bool(recipient))))


def list_backups(home: Path, *, as_json: bool) -> int:
    """`nanobot backup list`."""
    from nanobot.clock import SystemClock
    from nanobot.config.load import load_settings
    from nanobot.upkeep import backups

    settings = load_settings(home)
    zone = SystemClock(settings.agent.timezone).now().tzinfo
    folder = backups.folder_of(home, settings.backup.folder)
    stored = backups.found(folder)
    if as_json:
        data = [
            {
                "file": str(one.path),
                "made_at": one.made_at.astimezone(zone).isoformat(),
                "bytes": one.size,
                "encrypted": one.encrypted,
            }
            for one in stored
        ]
        return put(to_json({"folder": str(folder), "backups": data}))
    if not stored:
        return put(fitted(f"There are no backups in {folder}.\n"))
    rows = [
        (
            f"{one.made_at.astimezone(zone):%Y-%m-%d %H:%M}",
            size(one.size),
            "encrypted" if one.encrypted else "",
            str(one.path),
        )
        for one in stored
    ]
    return put(table([("made", "size", "", "file"), *rows]))


def verify(file: str, identity: str, *, as_json: bool) -> int:
    """`nanobot backup verify FILE`: exit code 1 where a home made of it would not work."""
    from nanobot.cli.restore import contents_text, data_of, given, quiet
    from nanobot.clock import SystemClock
    from nanobot.upkeep.restoring import verify as drill

    quiet()
    with Progress("checked") as progress:
        verified = drill(expanded(file), given(identity), SystemClock(), progress)
    data = data_of(verified.unpacked, verified.found)
    put(to_json(data) if as_json else fitted(contents_text(verified.unpacked, verified.found)))
    return 1 if verified.found.troubles else 0


def keygen(file: str, *, as_json: bool) -> int:
    """`nanobot backup keygen FILE`."""
    from nanobot.clock import SystemClock
    from nanobot.upkeep.packing import make_identity

    path = expanded(file).absolute()
    made_at = SystemClock().now().isoformat(timespec="seconds")
    public = make_identity(path, made_at)
    if as_json:
        return put(to_json({"file": str(path), "recipient": public}))
    return put(
        fitted(
            f"{public}\n\nThe secret key is in {path}. Keep it away from this machine, and a copy"
            " of it: without it no backup can be read. Put the line above into config.yaml as"
            " `backup.recipient`.\n"
        )
    )


def _made_text(made: Made, *, encrypted: bool) -> str:
    text = (
        f"{made.path}\n{made.files:,} files, {size(made.content)},"
        f" {size(made.size)} packed{', encrypted' if encrypted else ''}\n"
    )
    text += _named(
        "not in it (a cache, a link that leads elsewhere, or not readable)", made.left_out
    )
    text += _named("changed while it was read", made.changed)
    if not encrypted:
        text += "It holds your secrets as they are: keep it where nobody else can read it.\n"
    return text


def _named(what: str, paths: tuple[str, ...]) -> str:
    if not paths:
        return ""
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"{what}: {', '.join(one_line(path, 100) for path in paths[:_SHOWN])}{more}\n"
