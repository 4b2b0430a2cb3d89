"""The names under which the tools of servers are offered: `<server>__<tool>`. Pure.

What always holds: a name is one that every model's API takes, no two tools share one, and a tool
keeps its name whatever else is offered unless another one has a better right to it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

LONGEST = 64
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def offered_names(tools: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
    """The name for each (server, tool).

    Those whose own names need no change come first, so that nobody takes theirs.
    """
    plain = {key: _plain(*key) for key in tools}
    order = sorted(plain, key=lambda key: (plain[key] != "__".join(key), key))
    taken: dict[str, tuple[str, str]] = {}
    for key in order:
        name = plain[key]
        taken.setdefault(name, key)
        if taken[name] != key:
            taken[_marked(name, key)] = key
    return {key: name for name, key in taken.items()}


def _plain(server: str, tool: str) -> str:
    name = _UNFIT.sub("_", f"{server}__{tool}")
    return name if len(name) <= LONGEST else _marked(name, (server, tool))


def _marked(name: str, key: tuple[str, str]) -> str:
    mark = hashlib.sha256("\0".join(key).encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{name[: LONGEST - len(mark) - 1]}_{mark}"
