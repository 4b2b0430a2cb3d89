"""What every command sees of the system: programs, libraries, certificates; nothing personal.

An allow-list. Not in it: home folders, /run, /var, /opt, /sys, and of /etc what is not named here.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""On most systems links into /usr."""

_ALWAYS = (
    "/usr",
    "/nix/store",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/lsb-release",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/protocols",
    "/etc/services",
    "/etc/shells",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
    "/etc/xdg/fonts",
)

_NAMES = ("/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/passwd")
"""Readable as they are where they cannot be replaced."""


def links() -> tuple[tuple[str, str], ...]:
    """The links at the top, as (target, path)."""
    return tuple((str(Path(path).readlink()), path) for path in _FOLDERS if Path(path).is_symlink())


def readable(*, names: bool) -> tuple[str, ...]:
    """What is shown and cannot be changed; `names` of people and hosts on this machine as well."""
    real = (path for path in _FOLDERS if not Path(path).is_symlink())
    return (*real, *_ALWAYS, *(_NAMES if names else ()))


@cache
def interpreter() -> str:
    """The Python that this one was made from, without its virtual environment."""
    return os.path.realpath(sys.executable)


@cache
def libraries() -> str:
    """Where that one's own modules are."""
    return os.path.realpath(sys.base_prefix)
