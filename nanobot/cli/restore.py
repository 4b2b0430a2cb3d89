"""`nanobot restore FILE`: a home out of a backup."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.cli.admin import put, to_json
from nanobot.cli.progress import Progress
from nanobot.cli.show import fitted, size, table
from nanobot.config import command_for
from nanobot.gateway.lock import HomeLock
from nanobot.tilde import expanded
from nanobot_cli.text import clean

if TYPE_CHECKING:
    from nanobot.upkeep.restoring import Found, Restored
    from nanobot.upkeep.unpacking import Unpacked


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line says; `to` and `identity` may be empty."""

    file: str
    to: str
    identity: str
    replace: bool
    resume: bool


def restore_home(home: Path, wishes: Wishes, *, as_json: bool) -> int:
    """`nanobot restore FILE`."""
    from nanobot.clock import SystemClock
    from nanobot.upkeep.backups import undisturbed
    from nanobot.upkeep.restoring import expect_room, is_empty, restore
    from nanobot.upkeep.swap import is_unfinished
    from nanobot.upkeep.unpacking import expect_file

    quiet()
    file = expanded(wishes.file).absolute()
    expect_file(file)
    if wishes.to:
        home = expanded(wishes.to).absolute()
    expect_room(home, replace=wishes.replace)
    with contextlib.ExitStack() as stack:
        if not is_empty(home) and not is_unfinished(home):
            stack.enter_context(HomeLock(home / "state"))
            # A backup is packed without that lock, and would be of two homes.
            stack.enter_context(undisturbed(home))
        progress = stack.enter_context(Progress("unpacked"))
        restored = restore(
            file,
            home,
            given(wishes.identity),
            SystemClock(),
            replace=wishes.replace,
            resume=wishes.resume,
            progress=progress,
        )
    if as_json:
        previous = str(restored.previous) if restored.previous else ""
        more = {"home": str(home), "set_aside": restored.set_aside, "previous": previous}
        return put(to_json({**data_of(restored.unpacked, restored.found), **more}))
    return put(fitted(_restored_text(home, restored)))


def quiet() -> None:
    """Say on standard error what is an error and no more: what is wrong in a backup is a result."""
    from nanobot.logs import log_to_console
    from nanobot.security.redaction import Redactor

    log_to_console("error", Redactor())


def given(identity: str) -> Path | None:
    """The file of a secret key, if one was named."""
    return expanded(identity) if identity else None


def data_of(unpacked: Unpacked, found: Found) -> dict[str, object]:
    """What a backup holds, for machines."""
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


def contents_text(unpacked: Unpacked, found: Found) -> str:
    """What a backup holds, for people; what is wrong with it comes last."""
    head = unpacked.head
    how = "while it ran" if head.live else "while none ran"
    media = "" if head.media else ", without media"
    text = table(
        [
            ("made", f"{head.made_at.isoformat(' ', 'minutes')}{media}"),
            ("by", f"nanobot {clean(head.nanobot)}, {how}"),
            ("files", f"{unpacked.files:,} ({size(unpacked.size)}), each as it went in"),
            ("conversations", f"{found.conversations:,} ({found.messages:,} messages)"),
            ("memory", f"{found.versions:,} versions, {found.history:,} entries of history"),
            ("jobs", f"{found.jobs:,}"),
            ("under way", f"{found.waiting:,} messages or parts of replies"),
            ("failed", _failed(found.failed)),
        ]
    )
    return text + "".join(f"trouble: {clean(trouble)}\n" for trouble in found.troubles)


def _failed(count: int) -> str:
    return f"{count:,} (`nanobot queue list` shows them)" if count else "0"


def _restored_text(home: Path, restored: Restored) -> str:
    nanobot = command_for(home)
    text = f"Restored to {home}\n\n{contents_text(restored.unpacked, restored.found)}"
    text += "\n"
    if restored.previous:
        text += f"What was there before is in {restored.previous}.\n"
    if restored.set_aside:
        text += (
            f"What was under way when it was made ({restored.set_aside:,}) may have been dealt with"
            f" since, so it waits for your word: `{nanobot} queue list` shows it.\n"
        )
    return text + (
        f"`{nanobot} gateway` starts it. Stop the nanobot that the backup came from first: two of"
        f" them take each other's messages. `{nanobot} doctor` says what else this machine needs.\n"
    )
