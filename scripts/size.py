"""Compare the size of each room with its budget.

    python -m scripts.size            the table; fails if a budget is passed by a twentieth
    python -m scripts.size --report   only the table

Lines are counted in the formatted files, with comments and docstrings. Statements are nodes of
the syntax tree, so denser lines do not look like less code. `docs` is the share of lines that are
docstrings or comments. A budget makes a choice visible: a promise that needs more lines is worth
more than the budget, which is then changed with the reason. Most rooms are larger than their goals:
their budget is the current size, and the last column is the distance to the goal."""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

LARGE, SMALL = 500, 40
"""Files from `LARGE` lines on and up to `SMALL` lines need a reason."""


@dataclass(frozen=True, slots=True)
class Room:
    """Part of the product."""

    name: str
    lines: int
    """The budget: the current size. Raise it only with a promise that needs the lines."""
    goal: int
    """The intended size. Lower the budget with each step there."""
    paths: tuple[str, ...] = ()

    def contains(self, path: Path) -> bool:
        """Check whether a file (relative to the root) belongs to this room."""
        return any(path.is_relative_to(own) for own in self.paths or (f"nanobot/{self.name}",))


# The first room that contains a file counts it.
ROOMS = (
    Room("agent", 5_400, 3_900),
    Room("bus", 4_525, 2_800),
    Room("session", 3_050, 2_200),  # files are parts of messages
    Room("channel", 1_900, 1_450),  # its HTTP client: never `Unsent` if a server may have acted
    Room("offline", 1_075, 1_075, ("nanobot/providers/offline",)),
    Room("providers", 6_700, 4_150),
    Room("memory", 17_800, 12_600),
    Room("tools, tooling", 5_325, 4_900, ("nanobot/tools", "nanobot/tooling")),
    Room("skills, cron", 2_975, 2_700, ("nanobot/skills", "nanobot/cron")),
    Room("security", 4_950, 4_300),
    Room("voice", 625, 600),
    Room("set-up", 1_475, 1_425, ("nanobot/app/setup",)),  # for the terminal and the page
    Room("gateway, app, logs", 7_175, 5_700, ("nanobot/gateway", "nanobot/app", "nanobot/logs")),
    Room("team", 2_450, 3_100),
    Room("config", 3_150, 2_700),
    Room("cli", 6_325, 5_400),
    Room("upkeep, importing", 3_325, 2_700, ("nanobot/upkeep", "nanobot/importing")),
    Room("root modules, testing", 3_100, 2_200, ("nanobot",)),
    Room("nanobot_api", 2_475, 1_900, ("channels/nanobot_api",)),
    Room("nanobot_cli", 3_375, 1_500, ("channels/nanobot_cli",)),
    Room("nanobot_telegram", 3_775, 3_600, ("channels/nanobot_telegram",)),
    Room("nanobot_web", 4_625, 3_000, ("channels/nanobot_web",)),
    Room("nanobot_whatsapp", 4_750, 4_400, ("channels/nanobot_whatsapp",)),
)
KERNEL = ("agent", "bus", "session", "channel", "providers")
PRODUCT = Room("product", 101_200, 78_000)
KERNEL_BUDGET = Room("kernel", 21_750, 14_500)
BRIDGE = Room("bridge/src", 3_475, 3_500, ("channels/nanobot_whatsapp/bridge/src",))
MOST_FILES = 430  # the set-up and settings by task on the page, days in search, formulas
TOLERANCE = 1.05
"""A budget counts as passed only above this multiple."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a file or a room."""

    lines: int = 0
    files: int = 0
    statements: int = 0
    documentation: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(
            self.lines + other.lines,
            self.files + other.files,
            self.statements + other.statements,
            self.documentation + other.documentation,
        )


def size_of(text: str) -> Size:
    """Return the size of one Python file."""
    tree = ast.parse(text)
    documentation = {
        line for node in ast.walk(tree) if _is_docstring(node) for line in _lines_of(node)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    documentation |= {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    statements = sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
    return Size(text.count("\n"), 1, statements, len(documentation))


def _is_docstring(node: ast.AST) -> bool:
    """Check for a bare string: the docstring of a module, class or function, or of the constant
    above it."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _lines_of(node: ast.AST) -> range:
    assert isinstance(node, ast.Expr)
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def python_files() -> Iterator[Path]:
    """Yield the product's Python files, relative to the root."""
    for source in ("nanobot", "channels"):
        for path in sorted((ROOT / source).rglob("*.py")):
            if "node_modules" not in path.parts:
                yield path.relative_to(ROOT)


def measure() -> tuple[dict[str, Size], dict[Path, Size]]:
    """Return the size of each room by name, and of each file."""
    files = {path: size_of((ROOT / path).read_text("utf-8")) for path in python_files()}
    rooms = {room.name: Size() for room in ROOMS}
    for path, size in files.items():
        room = next(room for room in ROOMS if room.contains(path))
        rooms[room.name] += size
    return rooms, files


def bridge_size() -> Size:
    """Return the size of the WhatsApp helper's sources, which are TypeScript."""
    texts = [path.read_text("utf-8") for path in (ROOT / BRIDGE.paths[0]).rglob("*.ts")]
    return Size(sum(text.count("\n") for text in texts), len(texts))


def main() -> int:
    """Print the table. Return 1 if a budget is passed by more than a twentieth."""
    parser = argparse.ArgumentParser(prog="python -m scripts.size", description=__doc__)
    parser.add_argument("--report", action="store_true", help="never fail")
    report_only = parser.parse_args().report
    rooms, files = measure()
    rows = [(room, rooms[room.name]) for room in ROOMS]
    rows.append((KERNEL_BUDGET, sum((rooms[name] for name in KERNEL), Size())))
    rows.append((PRODUCT, sum(rooms.values(), Size())))
    rows.append((BRIDGE, bridge_size()))
    print(
        f"{'room':23}{'lines':>8}{'budget':>8}{'goal':>8}{'files':>7}{'statements':>12}{'docs':>6}"
    )
    for room, size in rows:
        over = "" if size.lines <= room.goal else f" {size.lines / room.goal - 1:+.0%}"
        share = f"{size.documentation / size.lines:6.0%}" if size.documentation else f"{'':6}"
        print(
            f"{room.name:23}{size.lines:8,}{room.lines:8,}{room.goal:8,}{size.files:7}"
            f"{size.statements:12,}{share}{over}"
        )
    large = [str(path) for path, size in files.items() if size.lines > LARGE]
    markers = [path for path, size in files.items() if size.statements <= 1]  # a docstring
    small = [path for path, size in files.items() if size.lines < SMALL and path not in markers]
    print(f"{len(large)} files over {LARGE} lines: {', '.join(large)}")
    print(f"{len(small)} files under {SMALL} lines, {len(markers)} that only mark a package")
    passed = [room.name for room, size in rows if size.lines > room.lines * TOLERANCE]
    if len(files) > MOST_FILES * TOLERANCE:
        passed.append(f"{len(files)} files instead of {MOST_FILES}")
    if passed and not report_only:
        print(f"more than 5 % over budget: {', '.join(passed)}", file=sys.stderr)
    return int(bool(passed) and not report_only)


if __name__ == "__main__":
    sys.exit(main())
