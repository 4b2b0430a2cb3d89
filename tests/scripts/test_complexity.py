"""The count of complexity matches radon's documentation."""

from __future__ import annotations

import ast

import pytest

from scripts.complexity import complexity_of, functions_in


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("pass", 1),
        ("if a or b or c: pass\n elif d: pass", 5),
        ("for a in b:\n  while c: pass\n else: pass", 4),
        ("try: pass\n except A: pass\n except B: pass\n else: pass", 4),
        ("return [a if b else c for a in d if e if f]", 5),
        ("match a:\n  case 1: pass\n  case _: pass", 2),
        ("assert a\n return lambda: b and c", 3),
    ],
)
def test_each_way_counts(body: str, count: int) -> None:
    (function,) = functions_in(ast.parse(f"def f():\n {body}\n"))
    assert complexity_of(function) == count


def test_a_function_inside_counts_for_itself() -> None:
    text = "def f():\n def g():\n  if a: pass\n"
    assert [complexity_of(function) for function in functions_in(ast.parse(text))] == [1, 2]
