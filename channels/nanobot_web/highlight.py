"""Colours of code, as classes of the page's stylesheet. They require the extra `highlight`."""

from __future__ import annotations

from functools import cache
from typing import Any

from markupsafe import Markup, escape

_LANGUAGES = {
    "bash", "c", "c++", "console", "cpp", "css", "diff", "docker",
    "dockerfile", "go", "html", "ini", "javascript", "js", "json", "kotlin", "lua", "make",
    "nginx", "patch", "php", "powershell", "py", "python", "r", "rb", "ruby", "rs", "rust",
    "scss", "sh", "shell", "sql", "swift", "toml", "ts", "typescript", "xml", "yaml", "yml",
    "zsh",
}  # fmt: skip
_MOST, _LONGEST = 4_000, 300
"""Characters of code, and of a line. Lexers can take quadratic time: about 0.2 s up to these limits
in these languages, for a text that was made for that. Lexers of Java and C# take more."""
_CLASSES = {
    "Comment": "c",
    "Keyword": "k",
    "Literal.String": "s",
    "Literal.Number": "n",
    "Name.Function": "f",
    "Name.Class": "f",
    "Name.Builtin": "b",
    "Name.Tag": "k",
    "Name.Attribute": "f",
    "Generic.Inserted": "s",
    "Generic.Deleted": "d",
    "Generic.Prompt": "c",
}
"""The class for each kind of token and those below it."""


def highlight(code: str, language: str) -> Markup:
    """Return `code` as HTML, with colours if its language is known."""
    is_long = len(code) > _MOST or max(map(len, code.split("\n"))) > _LONGEST
    known = not is_long and language.lower() in _LANGUAGES
    lexer = _find_lexer(language.lower()) if known else None
    if lexer is None:
        return escape(code)
    parts, run, last = list[Markup](), "", ""
    for kind, text in lexer.get_tokens(code):
        name = _class_of(kind)
        if name != last:
            parts.append(_mark(run, last))
            run, last = "", name
        run += text
    parts.append(_mark(run, last))
    return Markup("").join(parts)


def _mark(text: str, name: str) -> Markup:
    return (
        Markup('<span class="{}">{}</span>').format(name, text) if name and text else escape(text)
    )


@cache
def _class_of(kind: Any) -> str:
    names = [str(part).removeprefix("Token.") for part in reversed(kind.split())]
    return next((_CLASSES[name] for name in names if name in _CLASSES), "")


@cache
def _find_lexer(language: str) -> Any:
    try:
        from pygments import lexers, util  # type: ignore[import-untyped]
    except ImportError:
        return None
    try:
        return lexers.get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except util.ClassNotFound:
        return None
