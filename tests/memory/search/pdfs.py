"""Small PDF files, written by hand in the required format."""

from __future__ import annotations

import zlib
from collections.abc import Sequence


def pdf(pages: Sequence[str], *, compress: bool = False) -> bytes:
    """Return a file with these pages. Each line of a page is a line of text."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, page in enumerate(pages):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % (5 + 2 * number)
        )
        lines = " T* ".join(f"({line}) Tj" for line in page.split("\n"))
        objects.append(stream(f"BT /F1 12 Tf 72 700 Td 14 TL {lines} ET".encode(), compress))
    return assemble(objects)


def stream(content: bytes, compress: bool) -> bytes:
    """Return a stream object."""
    if compress:
        packed = zlib.compress(content, 1)
        head = b"<< /Length %d /Filter /FlateDecode >>" % len(packed)
        return head + b"\nstream\n" + packed + b"\nendstream"
    return b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content)


def assemble(objects: Sequence[bytes]) -> bytes:
    """Return the whole file, with its cross-reference table."""
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return body + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\n"
        b"startxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table, len(objects) + 1, len(body))
    )
