"""Test a whole nanobot against every shape of a model server, and print the table shape × outcome.

Each shape has a fake server that is as strict as the real one of its kind (Mistral, DeepSeek, Kimi,
Gemini, Groq, llama.cpp, vLLM, Ollama, …; see `tests.doubles.dialects`) and a conversation. The
outcome is right if the person gets the answer or the server's own reason, the next turn works, no
message is lost, and neither thinking nor markup is shown.

    python -m bench.dialects                      all of them (some two minutes)
    python -m bench.dialects --shape mistral      only names that contain this
    python -m bench.dialects --short              the first shapes of each sort
    python -m bench.dialects --list               only the names
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from loguru import logger

from bench.dialects import answers, errors, histories, patience
from bench.dialects.world import Shape, WrongError
from bench.reporting import report

SHAPES: Sequence[Shape] = (
    *histories.SHAPES,
    *answers.SHAPES,
    *errors.SHAPES,
    *patience.SHAPES,
)
PATIENCE = 20.0
"""Time limit of a shape in real seconds."""


async def outcome(shape: Shape, home: Path) -> str:
    """Return `right`, or the fault of a shape."""
    try:
        async with asyncio.timeout(PATIENCE):
            world = await shape.run(home)
    except WrongError as error:
        return f"WRONG: {error}"
    except TimeoutError:
        return f"WRONG: it does not end within {PATIENCE:g} s"
    except Exception as error:  # noqa: BLE001 - the table shows it
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"WRONG: {type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
    refused = sum(len(server.refused) for server in world.servers)
    return f"right, after {refused} refused requests" if refused else "right"


async def play(shapes: Sequence[Shape], folder: Path, *, quiet: bool) -> dict[str, str]:
    """Play shapes one after the other, and return the outcome of each."""
    found: dict[str, str] = {}
    for number, shape in enumerate(shapes):
        home = folder / str(number)
        home.mkdir()
        found[shape.name] = ended = await outcome(shape, home)
        if not quiet:
            print(f"{shape.name:<62} {ended[:300]}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shape", default="", help="only those whose name holds this")
    parser.add_argument("--short", action="store_true", help="every seventh of them")
    parser.add_argument("--list", action="store_true", help="only print the names")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args()
    shapes = [shape for shape in SHAPES if options.shape in shape.name]
    shapes = shapes[::7] if options.short else shapes
    if options.list:
        print("\n".join(shape.name for shape in shapes))
        return 0
    logger.remove()
    logging.disable()  # servers complain about closed clients
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(play(shapes, Path(folder), quiet=options.json))
    wrong = {name: ended for name, ended in found.items() if not ended.startswith("right")}
    figures: dict[str, object] = {
        "shapes": len(found),
        "seconds": time.monotonic() - begun,
        "shapes that end wrong (target 0)": len(wrong),
    }
    report("dialects", {**figures, "wrong": wrong} if options.json else figures)
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main())
