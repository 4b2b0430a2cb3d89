"""Child process that reads a PDF from standard input and writes its text to standard output as
JSON.

    python pdf_worker.py PAGES CHARACTERS

The answer is a list of `[number, text]`, without unreadable pages, or for an unreadable file a
string with the reason. Run by `nanobot.memory.search.library`, never imported."""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings


def pages(content: bytes, most: int, characters: int) -> list[tuple[int, str]]:
    """Return the text of the first `most` pages, up to so many characters in total."""
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("it is password-protected")
    found: list[tuple[int, str]] = []
    for number, page in enumerate(reader.pages[:most], 1):
        try:
            text = page.extract_text()[:characters].strip()
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001, S112 - a parser raises anything; other pages may be good
            continue
        if text:
            found.append((number, text.encode("utf-8", "replace").decode()))
        characters -= len(text)
        if characters <= 0:
            break
    return found


def main() -> None:
    most, characters = int(sys.argv[1]), int(sys.argv[2])
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    answer: list[tuple[int, str]] | str
    try:
        answer = pages(sys.stdin.buffer.read(), most, characters)
    except MemoryError:
        answer = "reading it takes too much memory"
    except Exception as error:  # noqa: BLE001 - the boundary between a hostile file and its reader
        words = " ".join(str(error).split())[:200]
        answer = f"it is damaged ({words or type(error).__name__})"
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
