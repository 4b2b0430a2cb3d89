"""Files that a person's programs run, or obey, by themselves in the folder where they lie. Pure.

Whoever can write one of these acts as the person as soon as they enter the folder, open it in an
editor, or type `git status` there. So commands make and change none of them. What a person has to
start on purpose (a `Makefile`, a script, a test) is not in this list, and neither is what only
counts in a home folder (`.bashrc`, `.tmux.conf`) or holds data alone (`.nvmrc`, `.pypirc`).

This is the only list: the sandbox and the file tools use it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

Kind = Literal["", "repository", "setting", "late"]
"""`repository`: git's; commands do not see it. `setting`: commands can read it. A command that
makes one of these two is ended at once. `late`: ordinary work (installing a package) makes some,
so it is put out of use when the command ends."""

GIT = ".git"
"""Its hooks, `core.fsmonitor`, aliases and filters are commands. A file of this name (worktree,
submodule) leads to such a folder, and git takes a bare repository for one by its contents."""

SETTINGS: dict[str, str] = {
    # Other version control: hooks and tools are set in the repository.
    **dict.fromkeys((".hg", ".jj", ".sl", "_darcs", ".pijul"), "hooks"),
    # What git itself runs in a repository that is set up so, though it lies beside `.git`.
    **dict.fromkeys((".husky", ".githooks"), "usual folders of git's hooks"),
    ".pre-commit-config.yaml": "commands that a commit runs",
    **dict.fromkeys(("lefthook.yml", ".lefthook.yml", ".overcommit.yml"), "the same"),
    # Shells, on entering the folder.
    **dict.fromkeys((".envrc", ".autoenv.zsh"), "direnv and autoenv run it"),
    **dict.fromkeys(("mise.toml", ".mise.toml", "mise.local.toml", ".mise"), "mise: tasks, hooks"),
    ".tool-versions": "asdf, mise: from which folder `python` or `node` is taken",
    # Editors, on opening the folder.
    **dict.fromkeys((".vscode", ".cursor", ".windsurf", ".devcontainer"), "tasks, servers, paths"),
    **dict.fromkeys((".devcontainer.json", ".idea", ".fleet", ".zed", ".helix"), "the same"),
    **dict.fromkeys((".exrc", ".vimrc", ".nvimrc", ".nvim.lua", ".lvimrc"), "vim with `exrc`"),
    ".dir-locals.el": "Emacs evaluates it",
    # Coding agents: servers that they start, hooks, and orders that they obey.
    **dict.fromkeys((".mcp.json", ".claude", ".gemini", ".codex", ".opencode"), "hooks, servers"),
    **dict.fromkeys((".roo", ".kiro", ".amazonq", ".continue", ".qwen"), "the same"),
    **dict.fromkeys(("opencode.json", "crush.json", ".crush.json", ".aider.conf.yml"), "the same"),
    **dict.fromkeys(("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENTS.override.md"), "orders"),
    **dict.fromkeys(("GEMINI.md", "QWEN.md", ".goosehints", "copilot-instructions.md"), "orders"),
    **dict.fromkeys((".cursorrules", ".windsurfrules", ".clinerules"), "orders"),
    # Package managers and build tools, whatever they are asked to do in the folder.
    ".npmrc": "which shell and which options npm's scripts run with",
    **dict.fromkeys((".yarnrc", ".yarnrc.yml"), "`yarnPath` is run in yarn's place"),
    **dict.fromkeys((".pnpmfile.cjs", ".pnpmfile.mjs"), "pnpm runs it"),
    "bunfig.toml": "`preload` is run with everything",
    ".cargo": "wrappers of the compiler, runners, aliases",
    **dict.fromkeys(
        ("rust-toolchain", "rust-toolchain.toml"), "where `cargo` itself is taken from"
    ),
    ".bundle": "Bundler's settings",
    ".mvn": "Maven's extensions and its JVM's options",
    **dict.fromkeys((".bazelrc", ".bazeliskrc"), "wrappers of build steps"),
    # Interpreters and debuggers, on being started in the folder.
    **dict.fromkeys((".Rprofile", ".octaverc", ".ghci", ".ocamlinit", ".iex.exs"), "start-up file"),
    **dict.fromkeys((".irbrc", ".pryrc", ".pdbrc", ".gdbinit", ".lldbinit"), "start-up file"),
}
"""Names of files and folders, and why each is here."""

_PYTHON = ("sitecustomize.py", "usercustomize.py")
_PTH = ".pth"
"""Python runs these at every start where they lie in a folder of packages."""

_PACKAGES = "node_modules"
"""Packages bring their authors' settings along, and nobody works in their folders."""


SHAPE = frozenset({"objects", "refs", "commondir"})
"""What makes a folder with a file `HEAD` a bare repository; git asks for no more."""


def is_repository(names: Collection[str]) -> bool:
    """Whether a folder with a `HEAD` and entries of these names, in small letters, is one."""
    return "commondir" in names or ("objects" in names and "refs" in names)


def kind(folder: str, name: str) -> Kind:
    """What an entry called `name` is in `folder`, a path; empty for an ordinary one."""
    if name.casefold() == GIT:
        return "repository"
    if name in SETTINGS:
        return "late" if _PACKAGES in folder.split("/") else "setting"
    if name in _PYTHON or name.endswith(_PTH):
        return "late"
    return ""


def unused(name: str, number: int = 1) -> str:
    """A name under which nothing takes notice of what was called `name`; the `number`th of them."""
    base = name.lower() if name.casefold() == GIT else name
    new = "dot-" + base.lstrip(".").removesuffix(_PTH)[:50]
    return f"{new}-{number}" if number > 1 else new
