"""Counts habits that make English hard to read, in docs, texts of the program, and docstrings.

    python -m scripts.english            fails if a habit is more frequent than its goal
    python -m scripts.english --report   the lines with the most hits

Rates are per 10,000 words. A text of the program is a string of at least four words that is not a
docstring. Code in Markdown does not count.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from scripts.size import ROOT, python_files

PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs")
SHORTEST = 4
"""Words of the shortest text that counts."""

FOR_MODELS = (
    "nanobot/memory/consolidation/summariser.py",
    "nanobot/memory/statements.py",
    "nanobot/providers/offline/",
    "nanobot/skills/prompt.py",
)
"""Files whose strings are prompts and lists of words."""

_CODE = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|PRAGMA|BEGIN) |\(\?")
"""SQL statements and patterns, which are not texts."""


@dataclass(frozen=True, slots=True)
class Habit:
    """A pattern that a native writer rarely uses, and how often it may occur."""

    name: str
    goal: float
    """Occurrences per 10,000 words."""
    pattern: re.Pattern[str]


def _habit(name: str, goal: float, pattern: str) -> Habit:
    return Habit(name, goal, re.compile(pattern, re.IGNORECASE))


HABITS = (
    _habit(
        "a clause in place of a noun: what is, what it, what you",
        12,
        r"\bwhat (?:is|are|was|were|it|they|you|he|she|a|an|the|this|that|those|one|each|no|people"
        r"|has|had|have|must|may|came|went|stands?|[a-z]+s)\b",
    ),
    _habit("told, said, says", 5, r"\b(?:told|said|says)\b"),
    _habit(
        "where for if or when",
        3,
        r"\bwhere (?:it|they|that|there|one|a|an|no|none|nothing|neither|both|such|something)\b",
    ),
    _habit(
        "beside, anew, meanwhile, likewise",
        1,
        r"\b(?:beside|anew|afresh|meanwhile|likewise|lest|where(?:by|in|upon)|there(?:by|in|upon))\b",
    ),
    _habit(
        "those that, one that, none that",
        2,
        r"\b(?:those (?:that|who|which|of)|ones? (?:that|who|which)|none (?:that|is|was|of))\b",
    ),
    _habit(
        "nobody, somebody, whoever, whatever",
        2,
        r"\b(?:(?:no|some|any|every)body|(?:who|what|which)ever)\b",
    ),
    _habit("alone for only", 1, r"\b(?!not |let |leave |left |leaves )[a-z]+ alone\b"),
    _habit(
        "stands, lies for is",
        1,
        r"\b(?:stands?|lies?) (?:in|there|here|below|above|behind|under|on|for|as|where)\b",
    ),
    _habit(
        "from elsewhere, your word, of yours",
        1,
        r"\b(?:from elsewhere|(?:your|owner's) word|of (?:(?:its|your|their) own|yours|theirs))\b",
    ),
    _habit("semicolon", 30, r";"),
)

OF_DOCSTRINGS = (*HABITS, _habit("what", 20, r"\bwhat\b"))


@dataclass(frozen=True, slots=True)
class Line:
    """Prose at a place, such as `docs/cron.md:12`."""

    place: str
    text: str


def prose_of(markdown: str) -> str:
    """Return Markdown without code, tags and addresses, with the same number of lines."""
    without_blocks = re.sub(
        r"^( *)```.*?^\1```", lambda block: "\n" * block[0].count("\n"), markdown, flags=re.S | re.M
    )
    plain = re.sub(r"`[^`\n]*`", "X", without_blocks)
    return re.sub(r"\]\([^)\n]*\)|<[^>\n]+>", " ", plain)


def page_lines() -> Iterator[Line]:
    """Yield the lines of all pages."""
    for name in PAGES:
        start = ROOT / name
        for path in sorted(start.rglob("*.md")) if start.is_dir() else [start]:
            for number, line in enumerate(prose_of(path.read_text("utf-8")).splitlines(), 1):
                yield Line(f"{path.relative_to(ROOT)}:{number}", line)


def text_lines() -> Iterator[Line]:
    """Yield the texts of the program."""
    for path in python_files():
        if not str(path).startswith(FOR_MODELS):
            for number, text in texts_in(ast.parse((ROOT / path).read_text("utf-8"))):
                yield Line(f"{path}:{number}", prose_of(text))


def docstring_lines() -> Iterator[Line]:
    """Yield the docstrings of the product, also of fields and constants."""
    for path in python_files():
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
            match node:
                case ast.Expr(value=ast.Constant(value=str(docstring))):
                    yield Line(f"{path}:{node.lineno}", prose_of(docstring))
                case _:
                    pass


def texts_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line number and the content of each text. A value within a text becomes `X`."""
    passed_over = set[int]()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() as docstring):
                passed_over.add(id(docstring))
            case ast.JoinedStr():
                passed_over |= {id(part) for part in node.values}
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "X"
                    for part in node.values
                )
                if _is_text(text):
                    yield node.lineno, text
            case ast.Constant(value=str(text)) if id(node) not in passed_over:
                if _is_text(text):
                    yield node.lineno, text
            case _:
                pass


def _is_text(text: str) -> bool:
    return len(text.split()) >= SHORTEST and not _CODE.search(text)


def count_hits(lines: list[Line], habit: Habit) -> float:
    """Return the occurrences of a habit per 10,000 words."""
    words = sum(len(re.findall(r"[A-Za-z']+", line.text)) for line in lines)
    hits = sum(len(habit.pattern.findall(line.text)) for line in lines)
    return hits / max(1, words) * 10_000


def main() -> int:
    """Print the rates, and return 1 if one is above its goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", action="store_true", help="list the lines with the most hits")
    listed = parser.parse_args().report
    above = 0
    kinds = (
        ("docs", HABITS, list(page_lines())),
        ("texts", HABITS, list(text_lines())),
        ("docstrings", OF_DOCSTRINGS, list(docstring_lines())),
    )
    for kind, habits, lines in kinds:
        for habit in habits:
            rate = count_hits(lines, habit)
            is_above = rate > habit.goal
            above += is_above
            if listed or is_above:
                print(f"{kind:10} {habit.name:55} {rate:6.1f}  goal {habit.goal:4.1f}")
        if listed:
            _print_worst(lines)
    return int(above > 0 and not listed)


def _print_worst(lines: list[Line]) -> None:
    scored = [(sum(len(one.pattern.findall(line.text)) for one in HABITS), line) for line in lines]
    for _, line in sorted((one for one in scored if one[0]), key=lambda one: -one[0]):
        print(f"  {line.place}: {line.text.strip()[:160]}")


if __name__ == "__main__":
    sys.exit(main())
