"""Count the product's functions that one message passes through, from the update to the reply.

    python -m bench.trace            the files with the functions entered in each
    python -m bench.trace --json     {"files": …, "functions": …}

A person writes "hello there" on Telegram, over HTTP, and a model in this process answers at once.
The count has the distinct functions of `nanobot` and its channels that any thread enters between
the update and the reply. Comprehensions, class bodies and generated code do not count. An earlier,
uncounted message imports everything, and its background work is over when the counting begins."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType

from bench.common import Instant
from tests.doubles.telegram.server import FakeTelegram
from tests.support import talking

PRODUCT = tuple(str(Path(__file__).parent.parent / part) for part in ("nanobot", "channels"))


_SETTLED_SECONDS = 1.0


class Trace:
    """The functions of the product that are entered while it is on."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()
        self._on = False
        threading.setprofile(self._note_call)

    def start(self) -> None:
        """Count from now on."""
        self._on = True
        sys.setprofile(self._note_call)

    def stop(self) -> dict[str, list[str]]:
        """Return the functions by file, relative to the root."""
        self._on = False
        sys.setprofile(None)
        found = defaultdict(list)
        for code in self._codes:
            is_function = code.co_flags & inspect.CO_OPTIMIZED
            is_named = code.co_name == "<lambda>" or not code.co_name.startswith("<")
            if is_function and is_named and code.co_filename.startswith(PRODUCT):
                path = str(Path(code.co_filename).relative_to(Path(__file__).parent.parent))
                found[path].append(code.co_qualname)
        return {path: sorted(found[path]) for path in sorted(found)}

    def _note_call(self, frame: FrameType, event: str, _: object) -> None:
        if self._on and event == "call":
            self._codes.add(frame.f_code)


async def trace(home: Path) -> dict[str, list[str]]:
    """Send one message to a gateway in `home`, and return the product's functions by file."""
    tracing = Trace()
    async with FakeTelegram() as telegram, talking(home, telegram, Instant()):
        telegram.say("good morning")
        await telegram.receive(1)
        await asyncio.sleep(_SETTLED_SECONDS)
        tracing.start()
        telegram.say("hello there")
        await telegram.receive(2)
        return tracing.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.trace")
    parser.add_argument("--json", action="store_true", help="only the two counts")
    as_json = parser.parse_args().json
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(trace(Path(folder) / "home"))
    counts = {"files": len(found), "functions": sum(map(len, found.values()))}
    if as_json:
        print(json.dumps(counts))
        return
    for path, functions in found.items():
        print(f"{path}: {', '.join(functions)}")
    print(f"{counts['files']} files, {counts['functions']} functions")


if __name__ == "__main__":
    main()
