"""Running npm for an installation, and saying in words why it failed.

What always holds: npm and what it starts are a process group of their own, which is killed when
`run_npm` is left before npm is done. It gets no more of our environment than it needs: keys that
stand there are nobody's business in a tree of packages.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nanobot.errors import NanobotError

_DEADLINE = 900.0
"""Seconds for one run, in which a slow line can bring everything."""

_KEPT = 16_384
"""Bytes of the end of what npm prints that are kept."""

_SHOWN_LINES = 12
_CODE = re.compile(r"^npm (?:error|ERR!) code (\S+)", re.MULTILINE)
_NOT_UNPACKED = re.compile(rb"\bTAR_ENTRY_ERROR (E[A-Z0-9]+)[:\s]")
_CODE_BYTES = 64
"""More than what `_NOT_UNPACKED` finds is long."""

_WANTED = re.compile(
    r"HOME|USER|LANG|LC_ALL|TERM|TMPDIR|XDG_CACHE_HOME|NODE_EXTRA_CA_CERTS|SSL_CERT_(?:FILE|DIR)"
    r"|(?:https?|no|all)_proxy|npm_config_\w+",
    re.IGNORECASE,
)

_OFFLINE = (
    "The packages could not be reached. Check the connection (and https_proxy, where there is a"
    " proxy), then run this again; nothing half-done was left."
)
_FULL = "The disk is full. Free some 200 MB and run this again; nothing half-done was left."
_RIGHTS = "Files could not be written. Mend the permissions (npm's own folder is ~/.npm)."
_CERTIFICATE = (
    "Something on the way to the packages shows a certificate that Node.js does not know. If that"
    " is a proxy of yours, name its certificate in NODE_EXTRA_CA_CERTS."
)
_CHANGED = (
    "What arrived is not what the lock file asks for, so nothing was installed. Run this again; if"
    " that does not help, a mirror or proxy in between changes packages."
)
_HINTS = {
    **dict.fromkeys(
        (
            "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND",
            "ERR_SOCKET_TIMEOUT", "ETIMEDOUT", "EIDLETIMEOUT",
        ),
        _OFFLINE,
    ),
    **dict.fromkeys(("ENOSPC", "EDQUOT"), _FULL),
    **dict.fromkeys(("EACCES", "EPERM", "EROFS"), _RIGHTS),
    **dict.fromkeys(
        (
            "CERT_HAS_EXPIRED", "DEPTH_ZERO_SELF_SIGNED_CERT", "SELF_SIGNED_CERT_IN_CHAIN",
            "UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
        ),
        _CERTIFICATE,
    ),
    "EINTEGRITY": _CHANGED,
}  # fmt: skip


class InstallFailed(NanobotError):
    """The helper could not be installed; what was there before is as it was."""


@dataclass(frozen=True, slots=True)
class Npm:
    """The programs: `npm` is run by `node`, whatever else is on the PATH."""

    npm: Path
    node: Path


async def run_npm(
    program: Npm, arguments: Sequence[str], folder: Path, *, held: int, environ: Mapping[str, str]
) -> None:
    """Run `npm ARGUMENTS` in `folder` to its end.

    `held` is a descriptor that it holds open for as long as any of it lives. Raises
    `InstallFailed` with the end of what it printed.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            program.npm,
            *arguments,
            cwd=folder,
            env=_environment(program.node, environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(held,),
            start_new_session=True,
        )
    except OSError as error:
        raise InstallFailed(f"{program.npm} cannot be run: {error.strerror}") from error
    what = f"npm {arguments[0]}"
    try:
        async with asyncio.timeout(_DEADLINE):
            printed = await _printed(process)
            code = await process.wait()
    except TimeoutError:
        minutes = int(_DEADLINE / 60)
        raise InstallFailed(f"{what} took more than {minutes} minutes", hint=_OFFLINE) from None
    finally:
        if process.returncode is None:  # afterwards its number may be another's
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if code or printed.not_unpacked:
        raise _failure(what, code, printed)


@dataclass(frozen=True, slots=True)
class _Printed:
    """The `end` of what npm printed, and why it could not write a file of a package: npm only warns
    of that, and says that all went well."""

    end: str
    not_unpacked: str


async def _printed(process: asyncio.subprocess.Process) -> _Printed:
    """Read what it prints until it closes its output."""
    assert process.stdout is not None
    last, not_unpacked = b"", ""
    while chunk := await process.stdout.read(_KEPT):
        if not not_unpacked and (found := _NOT_UNPACKED.search(last[-_CODE_BYTES:] + chunk)):
            not_unpacked = found[1].decode()
        last = (last + chunk)[-_KEPT:]
    return _Printed(last.decode("utf-8", "replace"), not_unpacked)


def _failure(what: str, code: int, printed: _Printed) -> InstallFailed:
    named = _CODE.search(printed.end)
    reason = printed.not_unpacked or (named[1] if named else f"exit code {code}")
    hint = _HINTS.get(reason)
    if hint is None:
        lines = [line for line in printed.end.splitlines() if line.strip()]
        hint = "\n  ".join(["What it said last:", *lines[-_SHOWN_LINES:]])
    return InstallFailed(f"{what} failed ({reason})", hint=hint)


def _environment(node: Path, environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if _WANTED.fullmatch(name)}
    path = f"{node.parent}{os.pathsep}{environ.get('PATH', os.defpath)}"
    return kept | {"PATH": path, "npm_config_update_notifier": "false"}
