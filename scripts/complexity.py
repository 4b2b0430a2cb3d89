"""Count the paths through each function, and list functions with too many.

    python -m scripts.complexity            fails above the limits
    python -m scripts.complexity --report   only the list, the largest first

The count is McCabe's in the form that radon documents: one, and one more for each branch, loop,
`except`, `else` of a loop or a `try`, comprehension with each of its conditions, `case` and
`assert`, and each further operand of `and` and `or`. A function inside another counts by itself.
Ruff's own rule leaves out comprehensions and operands."""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator

from scripts.size import ROOT, python_files

MOST = 15
"""The limit of one function."""

LARGE, MOST_LARGE = 10, 80
"""Number of the product's functions that may be above `LARGE`: the current number. The goal is
80."""

_ONE = ast.If | ast.IfExp | ast.ExceptHandler | ast.Assert
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def complexity_of(function: ast.AST) -> int:
    """Return the count for a function."""
    return 1 + sum(
        _own(node) for inner in ast.iter_child_nodes(function) for node in _within(inner)
    )


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those below it, without functions inside."""
    if not isinstance(node, _FUNCTION):
        yield node
        for inner in ast.iter_child_nodes(node):
            yield from _within(inner)


def _own(node: ast.AST) -> int:
    """Return the count of a node without its children."""
    match node:
        case ast.For() | ast.AsyncFor() | ast.While():
            return 1 + bool(node.orelse)
        case ast.Try() | ast.TryStar():
            return int(bool(node.orelse))
        case ast.comprehension():
            return 1 + len(node.ifs)
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.match_case():
            is_rest = isinstance(node.pattern, ast.MatchAs) and node.pattern.pattern is None
            return int(not is_rest)
        case _:
            return int(isinstance(node, _ONE))


def functions_in(tree: ast.Module) -> Iterator[_FUNCTION]:
    """Yield all functions and methods of a file."""
    return (node for node in ast.walk(tree) if isinstance(node, _FUNCTION))


def main() -> int:
    """Print the functions above `LARGE`. Return 1 if there are too many, or one is above `MOST`."""
    parser = argparse.ArgumentParser(prog="python -m scripts.complexity", description=__doc__)
    parser.add_argument("--report", action="store_true", help="list them all, and never fail")
    report_only = parser.parse_args().report
    found = [
        (complexity_of(function), f"{path}:{function.lineno} {function.name}")
        for path in python_files()
        for function in functions_in(ast.parse((ROOT / path).read_text("utf-8")))
    ]
    large = sorted((one for one in found if one[0] > LARGE), reverse=True)
    too_large = [one for one in large if one[0] > MOST]
    for count, where in large if report_only or len(large) > MOST_LARGE else too_large:
        print(f"{count:4}  {where}")
    print(
        f"{len(large)} of {len(found):,} functions count more than {LARGE} (at most {MOST_LARGE}),"
        f" {len(too_large)} more than {MOST} (none may)"
    )
    return int((len(large) > MOST_LARGE or bool(too_large)) and not report_only)


if __name__ == "__main__":
    sys.exit(main())
