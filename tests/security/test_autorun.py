"""Names of automatic files: known ones in every spelling, and unknown ones with a dot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.security.confine.autorun import AGENTS, DATA, NAMES, kind, plain, runs_by_itself

KNOWN = [
    *("a/.git", "a/.git/config", "x.git/HEAD", ".hg/hgrc", ".jj", ".sl", ".svn", "_darcs", "CVS"),
    *(".fslckout", "_FOSSIL_", ".bzr", ".pijul", ".got"),
    *(
        ".envrc",
        "a/.env",
        ".env.leave",
        ".autoenv.zsh",
        ".autoenv_leave.zsh",
        ".shadowenv.d/1.lisp",
    ),
    *("mise.toml", ".mise.toml", "mise.local.toml", "mise.dev.toml", ".mise.dev.local.toml"),
    *("mise/config.toml", "mise/conf.d/a.toml", ".config/mise.toml", ".config/mise/config.toml"),
    *(".rtx.toml", ".tool-versions", ".rvmrc", ".ruby-version", ".nvmrc", ".python-version"),
    *("rust-toolchain", "rust-toolchain.toml", "shell.nix", "flake.nix", "devbox.json", "_opam"),
    *(".vscode/tasks.json", ".idea", ".zed", ".devcontainer.json", "x.code-workspace", ".exrc"),
    *("X.Code-Workspace", "a.sublime-project", "a.xcodeproj/project.pbxproj", "a.Rproj", "_vimrc"),
    *(".nvim.lua", ".dir-locals.el", ".dir-locals-2.el", "app.pro.user", "app.csproj.user", ".vs"),
    *(".mcp.json", ".claude/settings.json", "CLAUDE.md", "CLAUDE.local.md", "AGENTS.md"),
    *(
        "sub/AGENTS.override.md",
        "GEMINI.md",
        "WARP.md",
        "AGENT.md",
        "opencode.jsonc",
        ".goosehints",
    ),
    *(".github/copilot-instructions.md", ".github/hooks/a.json", ".rules", ".clinerules/a.md"),
    *("bin/activate-hermit", "pkgx.yaml", "_vimrc_local.vim", "Project.ede", "lean-toolchain"),
    *("fastagent.config.yaml", "mcp_agent.config.yaml"),
]


@pytest.mark.parametrize("path", KNOWN)
def test_a_known_one_runs_by_itself(path: str) -> None:
    assert runs_by_itself(path)


@pytest.mark.parametrize(
    "spelling",
    [
        *(".GIT", ".Git", ".git.", ".git ", ".git . .", ".g\u200cit", ".git\ufeff", "\u200e.git"),
        *("git~1", "GIT~2", ".git::$INDEX_ALLOCATION", ".ENVRC", ".v\u017fcode", "VSCODE~1"),
        *("claude.MD", "CLAUDE~1.MD", "a\\.vscode\\tasks.json", "Mise.Local.TOML", "head"),
        *("CLAUDE\xad.md", "mise\u200b.toml", "\u2060.envrc", "opencode\ufe0f.json"),
    ],
)
def test_it_does_in_every_spelling_that_some_file_system_takes_for_it(spelling: str) -> None:
    """Git rejects the same spellings of `.git` (`is_hfs_dotgit`, `is_ntfs_dotgit`)."""
    assert runs_by_itself(f"sub/{spelling}")


_STEMS = st.text(st.characters(exclude_characters="/\\\0"), min_size=1, max_size=20)


@given(_STEMS)
def test_any_name_with_a_dot_does_unless_it_is_known_as_data(stem: str) -> None:
    data = ("ignore", ".swp", ".swo", ".cmd")
    odd = "_#~:" + "".join(map(chr, range(0x200C, 0x2070)))  # begin other kinds of data
    if not stem.startswith((*odd, "nfs", "sync")) and plain(f".{stem}") not in DATA:
        assert runs_by_itself(f"sub/.{stem}") or plain(f".{stem}").endswith(data)


@pytest.mark.parametrize(
    "path",
    [
        *("README.md", "Makefile", "src/main.py", "package.json", "docs/setup.md", "notes/Head.md"),
        *(".gitignore", "a/.dockerignore", ".editorconfig", ".gitattributes", ".env.example"),
        *(".venv/bin/python", ".venv/lib/python3/site-packages/a/.hidden", ".pytest_cache/v/x"),
        *("node_modules/.bin/tsc", "node_modules/.prisma/client/index.js", ".next/cache/.x"),
        *("target/debug/.fingerprint/x", "vendor/a/.cargo-checksum.json", "build/.ninja_log"),
        *("src/head/index.js", "components/HEAD/a", "objects/a.json", "refs/a", "docs/agents/a.md"),
        *("mise/Cargo.toml", "config.toml", "file~", "a.~1~", "agents.txt", "Head: plan.txt"),
        *("lefthook.yml", "sitecustomize.py", "a.pth", "pnpm-workspace.yaml", "ansible.cfg"),
    ],
)
def test_ordinary_work_does_not(path: str) -> None:
    assert not runs_by_itself(path)


def test_orders_in_the_letters_of_documentation_end_no_command() -> None:
    assert kind("docs", "claude.md") == kind("docs", "Agents.md") == "dot"
    assert kind("docs", "CLAUDE.md") == kind("", "AGENTS.override.md") == "trigger"


def test_what_lies_among_packages_does_if_it_is_known() -> None:
    assert kind("node_modules/a", ".vscode") == kind("a/vendor/b", "CLAUDE.md") == "late"
    assert kind("node_modules/a", ".git") == "repository"


def test_the_lists_are_in_the_letters_that_they_are_compared_in() -> None:
    assert all(name == name.casefold() for name in NAMES | AGENTS | DATA)
    assert not NAMES & DATA
