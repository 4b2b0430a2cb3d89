"""Worker process that reads HTML (UTF-8) from standard input and writes its content as JSON.

    python page_worker.py page|hits URL CHARACTERS

`page` returns `{"title": …, "text": …}`, `hits` the results on a DuckDuckGo page as `{"hits":
[[title, url, snippet], …], "blocked": …}`. A failure returns `{"error": …}`.
`nanobot.tools.web.pages` runs it. It is never imported and imports nothing of nanobot.

The Markdown has headings, paragraphs, lists, links, tables and code, and nothing else."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urljoin, urlsplit

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_UNSEEN_TAGS = (
    "audio button canvas datalist embed head iframe input math noscript object option script "
    "select style svg template textarea title video"
)
_NEVER = frozenset(_UNSEEN_TAGS.split())
_AROUND = frozenset({"nav", "aside", "footer", "dialog", "menu"})
_AROUND_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "complementary"})
_AROUND_CLASSES = frozenset({"noprint", "navbox", "mw-editsection"})
_BLOCK_TAGS = (
    "address article blockquote body center dd details div dl dt fieldset figcaption figure form "
    "h1 h2 h3 h4 h5 h6 header hgroup hr legend li main ol p pre section summary table tbody tfoot "
    "thead tr ul"
)
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_ANY_BLOCK = _BLOCK_TAGS.replace(" ", ", ")
_HEADING = re.compile("h[1-6]")
_ROWS = frozenset({"thead", "tbody", "tfoot"})
_LAYOUT = "table, h1, h2, h3, ul, ol, pre, p + p, div div"
"""Elements in a row that show that a table is used for layout."""
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_SPACE = re.compile(r"[ \t\n\r\f\v]+")
_BREAK = "\0"
"""A line break within a paragraph. No text of a page can contain this character."""

_MAX_DEPTH = 400
"""More deeply nested elements are omitted."""

_LONGEST_LINK = 1_000
_MAIN_SHARE = 0.35
"""An element is accepted as the main part if it has this share of the page's text."""


def read_page(tree: LexborHTMLParser, url: str, characters: int) -> dict[str, object]:
    title = tree.css_first("head > title") or tree.css_first("title") or tree.css_first("h1")
    body = tree.body or tree.root
    text = ""
    if body is not None:
        base = urljoin(url, attribute_of(tree.css_first("base[href]"), "href"))
        text = write_markdown(find_main_part(body), base, characters, whole=False)
        if not text:
            # better too much than nothing
            text = write_markdown(body, base, characters, whole=True)
    return {"title": text_of(title, 300), "text": text[:characters]}


def find_main_part(body: LexborNode) -> LexborNode:
    """Return the element that the page marks as its content, or the body."""
    found = body.css("main, [role=main], article")[:50]
    if not found:
        return body
    sizes = [len(node.text()) for node in found]
    largest = max(range(len(found)), key=sizes.__getitem__)
    return found[largest] if sizes[largest] >= _MAIN_SHARE * len(body.text()) else body


def write_markdown(node: LexborNode, base: str, characters: int, *, whole: bool) -> str:
    return "\n\n".join(Writer(base, characters, whole).write_blocks(node))


def read_hits(tree: LexborHTMLParser, url: str) -> dict[str, object]:
    """Return the results. `blocked`: the page is a captcha."""
    hits = []
    for result in tree.css(".result:not(.result--ad)")[:50]:
        link = result.css_first("a.result__a")
        address = unwrap_target(urljoin(url, attribute_of(link, "href")))
        if address:
            snippet = result.css_first(".result__snippet")
            hits.append([text_of(link, 300), address, text_of(snippet, 600)])
    puzzle = tree.css_first("#challenge-form, .anomaly-modal__title, .anomaly-modal__modal")
    return {"hits": hits, "blocked": puzzle is not None}


def unwrap_target(url: str) -> str:
    """Return the address of a result, unwrapped from a click counter."""
    parts = urlsplit(url)
    wrapped = parse_qs(parts.query).get("uddg", [""])[0]
    if parts.path == "/l/" and wrapped:
        return wrapped
    return "" if parts.path == "/y.js" or parts.scheme not in ("http", "https") else url


def resolve_link(base: str, href: str) -> str:
    if not href or href.startswith("#"):
        return ""
    try:
        url = urljoin(base, href.strip())
    except ValueError:
        return ""
    usable = url.startswith(("http://", "https://")) and len(url) <= _LONGEST_LINK
    return url.replace(" ", "%20").replace("(", "%28").replace(")", "%29") if usable else ""


def text_of(node: LexborNode | None, most: int) -> str:
    return " ".join(node.text(separator=" ").split())[:most] if node is not None else ""


def attribute_of(node: LexborNode | None, name: str) -> str:
    return (node.attributes.get(name) or "") if node is not None else ""


def is_omitted(node: LexborNode, whole: bool) -> bool:
    tag = node.tag
    if tag in _NEVER:
        return True
    given = node.attributes
    if "hidden" in given or given.get("aria-hidden") == "true":
        return True
    if _HIDDEN.search(given.get("style") or ""):
        return True
    if whole:
        return False
    classes = (given.get("class") or "").split()
    return (
        tag in _AROUND
        or given.get("role") in _AROUND_ROLES
        or not _AROUND_CLASSES.isdisjoint(classes)
    )


class Writer:
    """Converts elements to Markdown of about `most` characters. Invisible elements are omitted, and
    page furniture too unless `whole`."""

    def __init__(self, base: str, most: int, whole: bool) -> None:
        self._base, self._left, self._whole = base, most, whole

    def write_blocks(self, node: LexborNode, link: str = "", depth: int = 0) -> list[str]:
        """Return paragraphs, lists and other blocks. With a `link`, all their text links there."""
        done: list[str] = []
        line: list[str] = []

        def flush() -> None:
            text = _SPACE.sub(" ", "".join(line))
            if text := re.sub(rf" ?{_BREAK} ?", "\n", text).strip("\n "):
                self._left -= len(text)
                done.append(f"[{text}]({link})" if link else text)
            line.clear()

        for child in self._list_visible(node, depth):
            tag = child.tag or ""
            if tag in _BLOCKS or (tag != "-text" and child.css_first(_ANY_BLOCK) is not None):
                flush()
                done += self._write_block(child, tag, link, depth + 1)
            else:
                line.append(self._write_inline(child, depth + 1))
        flush()
        return done

    def _write_block(self, node: LexborNode, tag: str, link: str, depth: int) -> list[str]:
        if tag in {"pre", "hr"}:
            return fence_code(node.text()) if tag == "pre" else ["---"]
        if tag in {"ul", "ol"}:
            return self._write_list(node, tag, link, depth)
        if tag == "table":
            return self._write_table(node, link, depth)
        if tag == "a":
            link = resolve_link(self._base, attribute_of(node, "href")) or link
        inner = self.write_blocks(node, link, depth)
        if inner:
            if tag == "blockquote":
                inner = [prefix_lines("\n\n".join(inner), "> ", "> ")]
            elif _HEADING.fullmatch(tag):
                inner = [f"{'#' * int(tag[1])} {' '.join(inner)}"]
        return inner

    def _write_list(self, node: LexborNode, tag: str, link: str, depth: int) -> list[str]:
        shown: list[str] = []
        for item in self._list_visible(node, depth):
            if text := "\n".join(self.write_blocks(item, link, depth)):
                mark = f"{len(shown) + 1}. " if tag == "ol" else "- "
                shown.append(prefix_lines(text, mark, " " * len(mark)))
        return ["\n".join(shown)] if shown else []

    def _write_table(self, table: LexborNode, link: str, depth: int) -> list[str]:
        """Return data tables as rows and layout tables as their contents."""
        found: list[str] = []
        rows: list[str] = []
        for part in self._list_visible(table, depth):
            for row in self._list_visible(part, depth) if part.tag in _ROWS else (part,):
                cells = [
                    self.write_blocks(cell, link, depth) for cell in self._list_visible(row, depth)
                ]
                if row.tag == "tr" and row.css_first(_LAYOUT) is None:
                    texts = (
                        " ".join(cell).replace("\n", " ").replace("|", "\\|") for cell in cells
                    )
                    rows.append(f"| {' | '.join(texts)} |")
                else:
                    found += chain.from_iterable(cells)
        return [*found, "\n".join(rows)] if rows else found

    def _write_inline(self, node: LexborNode, depth: int) -> str:
        tag = node.tag
        if node.is_text_node:
            return _SPACE.sub(" ", (node.text_content or "").replace(_BREAK, ""))
        if tag == "br":
            return _BREAK
        if tag == "img":
            alt = _SPACE.sub(" ", attribute_of(node, "alt")).strip()[:200]
            return f"[image: {alt}]" * bool(alt)
        text = "".join(
            self._write_inline(child, depth + 1) for child in self._list_visible(node, depth)
        )
        if text.strip():
            if tag == "code":
                text = f"`{text}`"
            elif tag == "a" and (link := resolve_link(self._base, attribute_of(node, "href"))):
                before, after = " " * text[:1].isspace(), " " * text[-1:].isspace()
                text = f"{before}[{text.strip().replace(_BREAK, ' ')}]({link}){after}"
        return text

    def _list_visible(self, node: LexborNode, depth: int) -> Iterator[LexborNode]:
        child = node.child if depth < _MAX_DEPTH else None
        while child is not None and self._left > 0:
            if child.is_text_node or (child.is_element_node and not is_omitted(child, self._whole)):
                yield child
            child = child.next


def prefix_lines(text: str, first: str, following: str) -> str:
    return first + text.replace("\n", f"\n{following}")


def fence_code(code: str) -> list[str]:
    code = code.strip("\n")
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", code))])
    return [f"{fence}\n{code}\n{fence}"] if code.strip() else []


def main() -> None:
    sys.setrecursionlimit(10 * _MAX_DEPTH)  # several frames for each element
    mode, url, characters = sys.argv[1], sys.argv[2], int(sys.argv[3])
    answer: dict[str, object]
    try:
        from selectolax.lexbor import LexborHTMLParser

        tree = LexborHTMLParser(sys.stdin.buffer.read())
        answer = read_page(tree, url, characters) if mode == "page" else read_hits(tree, url)
    except ImportError:
        answer = {"error": "the package selectolax is not installed"}
    except MemoryError:
        answer = {"error": "it needs too much memory"}
    except Exception as error:  # noqa: BLE001 - the boundary between a hostile page and its reader
        answer = {"error": f"it is damaged ({type(error).__name__})"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
