"""Erase in a separate process that dies at a given rename (see `test_erase`).

python -m tests.memory.erase_killed HOME TEXT NUMBER"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from nanobot.testing import FakeClock
from tests.memory.homes import living


async def main(folder: Path, text: str, last: int) -> None:
    renames = 0

    def die(event: str, _: object) -> None:
        nonlocal renames
        renames += event == "os.rename"
        if renames == last:
            os._exit(9)

    async with living(folder, FakeClock()) as home:
        await home.eraser.plan(text)
        sys.addaudithook(die)
        await home.eraser.apply(text)
        print(renames)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
