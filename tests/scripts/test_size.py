"""The table of sizes counts correctly, and every file of the product belongs to one room."""

from __future__ import annotations

from scripts.size import ROOMS, Size, python_files, size_of


def test_lines_statements_docstrings_and_comments_are_counted() -> None:
    text = '"""What it is."""\n\nNUMBER = 1  # why\n"""What it counts."""\n\n\ndef f() -> int:\n'
    text += '    """Gives it."""\n    return NUMBER\n'
    assert size_of(text) == Size(lines=9, files=1, statements=6, documentation=4)


def test_a_string_that_is_a_value_is_no_documentation() -> None:
    assert size_of('TEXT = """one\ntwo"""\n').documentation == 0


def test_every_file_belongs_to_a_room() -> None:
    homeless = [path for path in python_files() if not any(room.contains(path) for room in ROOMS)]
    assert homeless == []
