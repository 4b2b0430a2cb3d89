"""Documents of the owner's library: cited by place, without following links out of it, never an
error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nanobot.memory.search.library import PdfLimits, documents, passages
from nanobot.security.paths import Root
from tests.memory.search.pdfs import assemble, pdf, stream


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace" / "library"
    folder.mkdir(parents=True)
    return folder


def names(folder: Path) -> list[str]:
    return ["/".join(place.names[1:]) for place, _ in documents(folder)]


def read(folder: Path, name: str, limits: PdfLimits | None = None) -> list[tuple[str, str]]:
    place = Root(folder.parent).place(f"{folder.name}/{name}")
    return passages(place, limits or PdfLimits())


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_there_need_not_be_a_library(tmp_path: Path) -> None:
    assert list(documents(tmp_path / "library")) == []


def test_what_can_be_read_is_listed_and_hidden_files_are_not(library: Path) -> None:
    for name in ("b.md", "a/deep/c.txt", "book.PDF", ".hidden", ".git/config", ".obsidian/x.md"):
        put(library, name, "text")
    put(library, "empty.md", "")
    assert sorted(names(library)) == ["a/deep/c.txt", "b.md", "book.PDF"]
    listed = {entry.name: entry for _, entry in documents(library)}
    assert listed["b.md"].size == 4
    assert listed["b.md"].mtime_ns == (library / "b.md").stat().st_mtime_ns


def test_markdown_is_cited_by_file_and_line(library: Path) -> None:
    long = "word " * 150
    path = put(
        library, "trips/notes.md", f"\ufeff# One\r\n\r\n{long}\r\n\r\n# Faro\r\n\r\nboat\r\n"
    )
    found = read(library, f"trips/{path.name}")
    assert [place for place, _ in found] == ["library/trips/notes.md:1", "library/trips/notes.md:5"]
    assert found[1][1] == "# Faro\n\nboat"


def test_any_utf8_text_is_read(library: Path) -> None:
    path = put(library, "诗.csv", "床前明月光，疑是地上霜")
    assert read(library, path.name) == [("library/诗.csv:1", "床前明月光，疑是地上霜")]


@pytest.mark.parametrize("content", [b"caf\xe9 latte", b"\x89PNG\0\0", b"text\0text"])
def test_what_is_no_text_is_one_warning(library: Path, warnings: list[str], content: bytes) -> None:
    assert read(library, put(library, "x.dat", content).name) == []
    assert len(warnings) == 1
    assert "x.dat in the library is not searched: it is not UTF-8 text" in warnings[0]


def test_links_lead_nowhere(library: Path, tmp_path: Path, warnings: list[str]) -> None:
    secret = put(tmp_path / "outside", "secret.txt", "the key is 42")
    (library / "link.txt").symlink_to(secret)
    (library / "folder").symlink_to(secret.parent)
    os.link(secret, library / "hard.txt")
    assert names(library) == ["hard.txt"]
    for path in ("link.txt", "folder/secret.txt", "hard.txt"):
        assert read(library, path) == []
    assert len(warnings) == 3


def test_a_library_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "outside", "secret.txt", "the key is 42")
    folder = tmp_path / "library"
    folder.symlink_to(tmp_path / "outside")
    assert names(folder) == []
    assert read(folder, "secret.txt") == []


def test_a_file_that_went_away_or_is_too_large_is_passed_over(
    library: Path, warnings: list[str]
) -> None:
    assert read(library, "gone.md") == []
    path = put(library, "large.txt", "x")
    os.truncate(path, 20 * 1024 * 1024 + 1)
    assert read(library, path.name) == []
    assert "too large" in warnings[-1]


def test_a_pdf_is_cited_by_page_and_its_reader_sees_none_of_our_environment(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Were the child's environment ours, this would end it before it reads anything.
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    path = put(library, "book.pdf", pdf(["The boat lies", "", "in the har-\nbour of Faro"]))
    assert read(library, path.name) == [
        ("library/book.pdf p. 1", "The boat lies"),
        ("library/book.pdf p. 3", "in the harbour of Faro"),
    ]


def test_pages_and_characters_of_a_pdf_are_bounded(library: Path) -> None:
    path = put(library, "book.pdf", pdf([f"page {n}" for n in range(1, 6)]))
    few = PdfLimits(pages=2)
    assert [text for _, text in read(library, path.name, few)] == ["page 1", "page 2"]
    short = PdfLimits(characters=9)
    assert [text for _, text in read(library, path.name, short)] == ["page 1", "pag"]


def test_a_damaged_pdf_is_one_warning_and_nothing_else(library: Path, warnings: list[str]) -> None:
    assert read(library, put(library, "bad.pdf", pdf(["x"])[:200]).name) == []
    assert len(warnings) == 1
    assert "bad.pdf in the library is not searched" in warnings[0]


def test_a_pdf_that_takes_too_long_or_too_much_memory_is_given_up(
    library: Path, warnings: list[str]
) -> None:
    path = put(library, "slow.pdf", pdf(["x"]))
    assert read(library, path.name, PdfLimits(seconds=0.001)) == []
    assert "longer than 0.001 seconds" in warnings[-1]
    assert read(library, path.name, PdfLimits(megabytes=10)) == []
    assert len(warnings) == 2


def test_a_pdf_that_unpacks_to_far_more_than_its_size_does_no_harm(library: Path) -> None:
    bomb = b"BT /F1 12 Tf 72 700 Td (boat) Tj ET" + b" " * 90_000_000
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R "
        b"/Resources << /Font << /F1 3 0 R >> >> >>"
    )
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        page,
        stream(bomb, compress=True),
    ]
    path = put(library, "bomb.pdf", assemble(objects))
    limits = PdfLimits(seconds=20, megabytes=512)
    assert all("boat" in text for _, text in read(library, path.name, limits))
