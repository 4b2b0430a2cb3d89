"""Names of files that run automatically: because a person enters the folder, sees it in a prompt or
a list, or opens it in an editor or with an agent.

Writing such a file means acting as the person. So commands can't create or change one, and file
tools ask for approval. To cover programs newer than this file, the rule has two parts:

- a name in `NAMES`, `ENDINGS`, `AGENTS` or `COMMON`, in every equivalent spelling of any file
  system;
- any other name that begins with a dot, unless it is known data (`DATA`), or is among packages or
  build results (`BUILT`), which need such names and in which no one works.

Files that run only when a person starts a program are not included: build tools, package managers,
interpreters, test runners, commit hooks.

Commands, file tools and the limits of guests all use this rule."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

Kind = Literal["", "repository", "trigger", "late", "dot"]
"""`repository`: git's, invisible to commands. `trigger`: a listed name. A command that creates one
of these two is killed at once. `dot`: another name with a dot, possibly a temporary or common file;
it is disabled when the command ends. `late`: a listed name among packages, which contain their
authors' settings; also disabled at the end."""

GIT = ".git"
"""Its hooks, `core.fsmonitor`, aliases and filters are commands. A file of this name (worktree,
submodule) points to such a folder."""

HEAD = "head"
OF_BARE = frozenset({HEAD, "objects", "commondir"})
"""Git recognizes a bare repository by the first as a file and one of the others."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TABLE = """
Version control, whose settings and hooks are commands | .hg .jj .sl .svn _svn .bzr .pijul .fslckout
The same: Fossil, darcs, CVS, Monotone, Arch, Codeville | _fossil_ .fos _darcs cvs _mtn {arch} .cdv
The same: got, repo, Perforce, Plastic, DVC | .got .repo .p4config p4config.txt .plastic .dvc
The same: TFVC, EdenFS; a prompt that reads its own file | $tf .tf .eden .bash-git-rc
Shells, on entering the folder: direnv, autoenv and their like | .envrc .env .env.leave .unenv .in
The same | .out .autoenv .autoenv.leave .autoenv.zsh .autoenv_leave.zsh .shadowenv.d .rvmrc .ondirrc
The same | .autoxsh .autoenv.ps1 .envrc.local .envrc.private .direnv
Hermit, pkgx | activate-hermit pkgx.yaml pkgx.yml
mise, asdf: hooks, and which `python` is taken | mise.toml .mise.toml .mise .tool-versions
opam's switch, which its shell hook enters | _opam
Nix and Guix, by lorri, devenv, devbox or an .envrc | flake.lock devenv.yaml devenv.lock devbox.json
The same | devbox.lock guix.scm manifest.scm .flox
Editors: tasks, servers, paths | .vscode .cursor .windsurf .zed .idea .fleet .nova .vs .theia .helix
The same | .devcontainer .devcontainer.json .gitpod.yml .replit .idx
The same | nbproject .obsidian logseq .bsp .ropeproject .kateproject .kateconfig .rprofile .renviron
vim with a plugin, Emacs's EDE | _vimrc_local.vim project.ede
vim with `exrc`, Emacs | .exrc _exrc .vimrc _vimrc .gvimrc _gvimrc .nvimrc .nvim.lua .lvimrc
The same | .local.vimrc .vim .nvim .kak .dir-locals.el .dir-locals-2.el
Coding agents: hooks, servers that they start, orders | .mcp.json .claude .codex .gemini .qwen .roo
The same | .opencode opencode.json opencode.jsonc .kilo .kilocode kilo.json kilo.jsonc .cline .kiro
The same | .clinerules .cursorrules .windsurfrules .roomodes .goosehints .goose .aider.conf.yml .amp
The same | .crush .crush.json crush.json .amazonq .continue .junie .augment .openhands .trae .warp
The same | .factory .agents .agent .rules reasonix.toml firebender.json
The same | agents.config.json codebuff.json gptme.toml trae_config.yaml .pi
The same | fastagent.config.yaml mcp_agent.config.yaml
The same | .rovodev .vibe .grok .hermes .devin .kimi-code .aiassistant .zencoder .copilot
The same | .antigravity .deepagents .reasonix .qoder .codebuddy .iflow .kode .tabnine .cody .plandex
Windows shows the folder: what these name is fetched | desktop.ini autorun.inf
"""
"""The reason for each group of names, and the names in lower case."""

NAMES = _words(" ".join(line.partition("|")[2] for line in _TABLE.splitlines()))

ENDINGS = (
    *(".code-workspace", ".sublime-project", ".sublime-workspace", ".rproj", ".kdev4", ".wpr"),
    *(".xcodeproj", ".xcworkspace", ".playground", ".iml", ".ipr", ".iws", ".pro.user", ".suo"),
    *("proj.user", ".txt.user"),
    *(".komodoproject", ".tmproj", ".bbprojectd", ".novaproject"),
    *(".lnk", ".scf", ".url", ".library-ms", ".searchconnector-ms"),
)
"""Editor projects, and files that Windows reads when it shows a folder."""

COMMON = _words(
    ".github rust-toolchain rust-toolchain.toml lean-toolchain global.json mcp.json agent.toml"
    " forge.yaml knowledge.md devfile.yaml"
)
"""Similar names (agents; the compiler whose version a prompt shows) that are common in archives and
data. The same holds for `.nix` files, which lorri and nix-direnv evaluate."""

AGENTS = _words(
    "agent agents claude gemini qwen crush iflow codebuddy warp replit reasonix bugbot kimi grok"
    " opencode codex hermes copilot-instructions amazonq"
)
"""Instructions that an agent obeys: `CLAUDE.md`, `AGENTS.override.md`. In other cases (`claude.md`)
they are common in documentation, so they count like `COMMON`."""

DATA = _words(
    ".gitattributes .gitkeep .keep .mailmap .editorconfig .clang-format .env.example .env.sample"
    " .env.template .env.dist .travis.yml .gitlab-ci.yml .readthedocs.yml .readthedocs.yaml"
    " .nojekyll .ds_store .localized .stfolder .stversions .dropbox .dropbox.cache .venv .cache"
    " .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .nyc_output .tox .nox .eggs"
    " .ipynb_checkpoints .benchmarks .next .nuxt .output .svelte-kit .astro .parcel-cache .turbo"
    " .vite .angular .expo .docusaurus .sass-cache .jekyll-cache .gradle .kotlin .dart_tool"
    " .terraform .terraform.lock.hcl .stack-work .ccache .npm .pnpm-store .yarn .pnp.cjs"
    " .pnp.loader.mjs .zig-cache .build .ninja_log .ninja_deps .deps .libs .dirstamp .buildinfo"
    " .doctrees .snakemake .nextflow .phpunit.result.cache .phpunit.cache .php-cs-fixer.cache"
    " .rspec_status .bin .package-lock.json"
)
"""Names with a dot that no program runs automatically: data, caches, build results."""

_DATA_BEGINNINGS = ("._", ".#", ".~", ".nfs", ".fuse_hidden", ".coverage.", ".syncthing.", ".sync_")
_DATA_ENDINGS = ("ignore", ".swp", ".swo", ".cmd")

BUILT = _words(
    "node_modules bower_components site-packages dist-packages vendor target build dist out _build"
    " pods venv __pycache__"
)

_UNSEEN = dict.fromkeys(
    (
        *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810)),
        *(*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164),
        *(*range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0, *range(0xFFF0, 0xFFF9)),
        *(*range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
    )
)
"""Characters that ext4 and F2FS ignore in case-insensitive comparisons (Unicode's
Default_Ignorable_Code_Point), and HFS+ in part (git's `next_hfs_char`)."""


_MOST_NAMES = 10_000


@lru_cache(_MOST_NAMES)
def plain(name: str) -> str:
    """Return the equivalent name on a case-insensitive file system, HFS+ or NTFS. NTFS drops final
    dots and blanks, and a colon begins a stream name."""
    if not name.isascii():
        name = name.translate(_UNSEEN)
    if name.startswith("."):
        name = name.partition(":")[0]
    return name.rstrip(" .").casefold()


def kind(folder: str, name: str, *, strict: bool = False) -> Kind:
    """Return the kind of an entry `name` in the path `folder`. With `strict`, each name with a dot
    has a kind."""
    found, is_below_hidden = _kind_of_name(name), "/." in f"/{folder}"
    if found == "repository":
        return found
    if not found:
        return _kind_by_place(folder, name, strict=strict and not is_below_hidden)
    if is_built(folder):
        return "late" if found == "trigger" else ""
    # The folder with a dot is treated as a whole.
    return "" if found == "dot" and is_below_hidden else found


def _kind_by_place(folder: str, name: str, *, strict: bool) -> Kind:
    if name.endswith(".toml") and _is_of_mise(folder, plain(name)):
        return "trigger"
    return "dot" if strict and is_hidden(name) else ""


@lru_cache(_MOST_NAMES)
def _kind_of_name(given: str) -> Kind:
    """Return the kind of a name in any folder."""
    if is_git(given) or plain(given) == HEAD:
        return "repository"
    name = plain(given)
    if _is_listed(name) or (_is_order(name) and given.partition(".")[0].isupper()):
        return "trigger"
    return "dot" if _is_common(name) or (is_hidden(given) and not _is_data(name)) else ""


def _is_common(name: str) -> bool:
    is_named = name in COMMON or _is_short_for(name, COMMON)
    return is_named or name.endswith(".nix") or _is_order(name)


def _is_order(name: str) -> bool:
    stem, _, rest = name.partition(".")
    return stem in AGENTS and rest in ("md", "mdc", "local.md", "override.md")


def _is_listed(name: str) -> bool:
    of_mise = name.startswith(("mise.", ".mise.")) and name.endswith(".toml")
    return of_mise or name in NAMES or name.endswith(ENDINGS) or _is_short_for(name, NAMES)


def _is_data(name: str) -> bool:
    return name in DATA or name.startswith(_DATA_BEGINNINGS) or name.endswith(_DATA_ENDINGS)


def _is_of_mise(folder: str, name: str) -> bool:
    """Check for mise's files in a folder without a dot: `mise/config.local.toml`."""
    above = folder.casefold().split("/")
    return (above[-1] == "mise" and name.startswith("config.")) or above[-2:] == ["mise", "conf.d"]


def is_hidden(name: str) -> bool:
    """Check whether a name begins with a dot on any file system."""
    return name.translate(_UNSEEN).startswith(".")


def is_git(name: str) -> bool:
    return plain(name) == GIT or _is_short_for(plain(name), (GIT,))


def is_built(folder: str) -> bool:
    """Check whether a folder holds packages or build results."""
    return not BUILT.isdisjoint(folder.casefold().split("/"))


def find_obeyed_name(path: str) -> str:
    """Return the first name in a path that runs automatically, or "". A folder called `HEAD` is
    ordinary."""
    names = [name for name in path.replace("\\", "/").split("/") if name not in ("", ".")]
    for at, name in enumerate(names):
        is_folder = at + 1 < len(names)
        if kind("/".join(names[:at]), name) and not (is_folder and plain(name) == HEAD):
            return name
    return ""


def runs_by_itself(path: str) -> bool:
    """Check whether a workspace path is such a file, or is in such a folder."""
    return bool(find_obeyed_name(path))


def _is_short_for(name: str, names: frozenset[str] | tuple[str, ...]) -> bool:
    """Check for NTFS short names of old programs: `git~1`, `vscode~1`."""
    short, tilde, number = name.partition("~")
    if not tilde or not number[:1].isdigit():
        return False
    return any(one.lstrip(".").replace(".", "")[:6] == short for one in names)
