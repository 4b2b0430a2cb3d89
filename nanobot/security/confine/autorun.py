"""Files that a person's programs run, or obey, by themselves in the folder where they lie.

Whoever can write one of these acts as the person as soon as they enter the folder, open it in an
editor, or type `git status` there. So commands make and change none of them. What a person has to
start on purpose (a `Makefile`, a script, a test) is not in this list, and neither is what only
counts in a home folder (`.bashrc`, `.tmux.conf`) or holds data alone (`.nvmrc`, `.pypirc`).

This is the only list: the sandbox and the file tools use it.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Literal, NamedTuple

from nanobot.security.confine import Spec, kernel

Kind = Literal["", "repository", "setting", "late"]
"""`repository`: git's; commands do not see it. `setting`: commands can read it. A command that
makes one of these two is ended at once. `late`: ordinary work (installing a package) makes some,
so it is put out of use when the command ends."""

_REPOSITORY: Kind = "repository"

_CLOSED = "closed"
_TRIES = 200
"""How often a folder is opened that another command closes meanwhile."""

_MOST_ROUNDS = 1_000
"""So deep may these lie in each other."""

GIT = ".git"
"""Its hooks, `core.fsmonitor`, aliases and filters are commands. A file of this name (worktree,
submodule) leads to such a folder, and git takes a bare repository for one by its contents."""

_TABLE = """
Other version control: hooks and tools are set in the repository | .hg .jj .sl _darcs .pijul
Usual folders of git's hooks, though they lie beside `.git` | .husky .githooks
Commands that a commit runs | .pre-commit-config.yaml lefthook.yml .lefthook.yml .overcommit.yml
Shells, on entering the folder: direnv and autoenv run it | .envrc .autoenv.zsh
mise: tasks, hooks | mise.toml .mise.toml mise.local.toml .mise
asdf, mise: from which folder `python` or `node` is taken | .tool-versions
Editors, on opening the folder: tasks, servers, paths | .vscode .cursor .windsurf .devcontainer
The same | .devcontainer.json .idea .fleet .zed .helix
vim with `exrc`; Emacs evaluates it | .exrc .vimrc .nvimrc .nvim.lua .lvimrc .dir-locals.el
Coding agents: hooks, servers that they start | .mcp.json .claude .gemini .codex .opencode .roo
The same | .kiro .amazonq .continue .qwen opencode.json crush.json .crush.json .aider.conf.yml
Orders that they obey | CLAUDE.md CLAUDE.local.md AGENTS.md AGENTS.override.md GEMINI.md QWEN.md
The same | .goosehints copilot-instructions.md .cursorrules .windsurfrules .clinerules
Package managers, whatever they do in the folder: which shell and options npm takes | .npmrc
`yarnPath` is run in yarn's place; pnpm runs it | .yarnrc .yarnrc.yml .pnpmfile.cjs .pnpmfile.mjs
`preload` is run with everything | bunfig.toml
Build tools: wrappers of the compiler, runners, aliases | .cargo
Where `cargo` itself is taken from | rust-toolchain rust-toolchain.toml
Bundler's settings; Maven's extensions and its JVM's options; wrappers | .bundle .mvn .bazelrc
The same | .bazeliskrc
Interpreters and debuggers, on being started there: start-up files | .Rprofile .octaverc .ghci
The same | .ocamlinit .iex.exs .irbrc .pryrc .pdbrc .gdbinit .lldbinit
"""
"""Why files and folders are here, and their names."""

SETTINGS = frozenset(
    name for line in _TABLE.strip().splitlines() for name in line.partition("|")[2].split()
)

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


class Trigger(NamedTuple):
    """Something of this list, or a bare repository, by the folder that it is. `mark` changes with
    whatever makes it another one. `entry` is what has to be renamed to put it out of use."""

    path: str
    kind: Kind
    mark: str
    entry: str


Entered = Callable[[int, str], None]
"""Told of each folder before it is listed: its descriptor, and its path with a `/` at the end."""


def find_triggers(
    tree: str, start: str = "", entered: Entered | None = None, *, without: Collection[str] = ()
) -> list[Trigger]:
    """All that there is of it in the folder `start` of `tree` and below, `without` some paths.

    Somebody may be changing the tree meanwhile: no link is followed, and what is gone or belongs
    to somebody else is passed over.
    """
    found: list[Trigger] = []
    waiting = [start]
    with kernel.closing(os.open(tree, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
        while waiting:
            path = waiting.pop()
            prefix = f"{path}/" if path else ""
            try:
                with kernel.closing(_listable(root, path or ".")) as folder:
                    if entered:
                        entered(folder, prefix)
                    triggers, inner = _looked_at(folder, prefix, without)
            except PermissionError:  # it is closed whenever it is opened, and may hold anything
                found.append(Trigger(path, "setting", _CLOSED, path))
            except OSError:
                continue
            else:
                found += triggers
                waiting += inner
    return found


def disable_triggers(
    tree: str, known: Collection[Trigger], *, git: bool, without: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Put what is not `known` in `tree` out of use, by another name; says which and what. With
    `git` repositories may be made."""
    tried: set[Trigger] = set()

    def new() -> list[Trigger]:
        found = (one for one in find_triggers(tree, without=without) if one not in known)
        found = (one for one in found if one.mark != _CLOSED)  # what is in it has no new name
        return [one for one in found if one not in tried and not (git and one.kind == _REPOSITORY)]

    for _ in range(_MOST_ROUNDS):  # there may be more of it inside what was renamed
        if not (found := new()):
            return
        tried.update(found)
        with kernel.closing(os.open(tree, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
            for one in found:
                folder, slash, name = one.entry.rpartition("/")
                with (
                    suppress(OSError),
                    kernel.closing(_listable(root, folder or ".")) as descriptor,
                ):
                    yield one.entry, f"{folder}{slash}{_renamed(descriptor, name)}"


def _listable(root: int, path: str) -> int:
    """Open a folder, also one that may not be listed, or that lies in one that may not be entered:
    that hides nothing from who owns it."""
    flags = os.O_RDONLY | os.O_DIRECTORY
    for _ in range(_TRIES):
        with suppress(PermissionError):
            descriptor = kernel.opened(root, path, flags)
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if not mode & stat.S_IXUSR:
                with suppress(OSError):
                    os.fchmod(descriptor, mode | stat.S_IRWXU)
            return descriptor
        with suppress(PermissionError):
            _open_up(root, path)
    return kernel.opened(root, path, flags)


def _open_up(root: int, path: str) -> None:
    """Let its owner enter a folder and those above it. Raises `OSError` for what is not ours."""
    names = path.split("/")
    for count in range(len(names) + 1):
        above = "/".join(names[:count])
        flags = os.O_PATH | os.O_DIRECTORY
        with kernel.closing(kernel.opened(root, above, flags) if above else os.dup(root)) as named:
            itself, status = f"/proc/self/fd/{named}", os.fstat(named)
            if os.access(itself, os.X_OK if count < len(names) else os.X_OK | os.R_OK):
                continue
            if status.st_uid != os.geteuid():
                raise FileNotFoundError(path)  # a command cannot enter it either
            os.chmod(itself, stat.S_IMODE(status.st_mode) | stat.S_IRWXU)


def _looked_at(
    descriptor: int, folder: str, without: Collection[str]
) -> tuple[list[Trigger], list[str]]:
    """What there is in one folder, and the folders in it that have to be looked at."""
    with os.scandir(descriptor) as entries:
        names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    triggers, inner = [], []
    if is_repository({name.casefold() for name in names}):
        files = (name for name, is_folder in names.items() if not is_folder)
        heads = [name for name in files if name.casefold() == "head"]
        triggers += [
            Trigger(folder.rstrip("/") or h, _REPOSITORY, "", f"{folder}{h}") for h in heads
        ]
    for name, is_folder in names.items():
        path = f"{folder}{name}"
        if path in without:
            continue
        kind_of_it = kind(folder, name)
        if kind_of_it:
            with suppress(FileNotFoundError):
                triggers.append(_trigger(descriptor, path, name, kind_of_it))
        if is_folder and kind_of_it in ("", "late"):
            inner.append(path)
    return triggers, inner


def _trigger(descriptor: int, path: str, name: str, kind: Kind) -> Trigger:
    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    if kind == "setting" and stat.S_ISLNK(status.st_mode):
        kind = "late"  # what a link leads to cannot be held fast
    mark = {"late": f"{status.st_ino} {status.st_ctime_ns}", "repository": f"{status.st_ino}"}
    return Trigger(path, kind, mark.get(kind, ""), path)


def _renamed(folder: int, name: str) -> str:
    """Rename it in its folder to what is taken notice of by nothing; returns the new name."""
    base = name.lower() if name.casefold() == GIT else name
    new = plain = "dot-" + base.lstrip(".").removesuffix(_PTH)[:50]
    taken, number = set(os.listdir(folder)), 1
    while new in taken:
        number += 1
        new = f"{plain}-{number}"
    try:
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)
    except PermissionError:
        os.fchmod(folder, stat.S_IMODE(os.fstat(folder).st_mode) | stat.S_IRWXU)
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)
    return new


_MADE = 0x100 | 0x80  # IN_CREATE, IN_MOVED_TO
_FOLDER, _OVERFLOW = 0x40000000, 0x4000
_EVENT = struct.Struct("=iIII")
_AT_ONCE = 256 * 1024
_APPEARED = (
    "{!r} appeared, which programs outside run or obey by themselves (what needs it can be done in"
    " $TMPDIR; settings other than .git can be written with write_file)"
)

REPLACED = "a protected file was replaced while it ran"

_LONGEST = 0.2
"""Seconds for what is known to have happened; where that takes longer, everything is looked at."""

_SHARE = 20
"""Where there are not enough watches, one part of time in so many goes into looking instead."""


class AutorunWatch:
    """Watches where a command can write. Made before it starts; `appeared` is asked while it runs,
    whenever `descriptor` is readable, and from time to time. `known` is what was there.

    A person can make a repository while a command runs, and it could have its say in that before
    the person has typed the next word. So it is noticed at once what a command, or anybody
    meanwhile, makes of this list, and the first sign counts, be it gone again or not.
    """

    def __init__(self, spec: Spec) -> None:
        self._git, self._guarded = not spec.hide_git, spec.guarded
        self._watched: dict[int, tuple[str, str]] = {}
        self._blind = self._missed = False
        self._look_at = 0.0
        self.descriptor = kernel.inotify()
        self.known = {tree: set(self._find_triggers(tree, "")) for tree in spec.trees}
        # No mount protects what is made in the place of these, or of a folder above.
        self._mounted = set[tuple[str, str]]()
        if spec.kind == "bubblewrap":
            own = ((spec.workspace, path) for path in self._guarded)
            held = ((tree, path) for tree, path, _ in self.held())
            for tree, path in (*own, *held):
                names = path.split("/")
                above = ("/".join(names[:count]) for count in range(1, len(names) + 1))
                self._mounted.update((tree, one) for one in above)
        self._held = {(tree, path) for tree, path, _ in self.held()}

    def held(self) -> Iterator[tuple[str, str, str]]:
        """What no command may change, as `Spec.held`."""
        for tree, known in self.known.items():
            yield from ((tree, one.path, one.kind) for one in known if one.kind != "late")

    def disable_triggers(self) -> Iterator[tuple[str, str]]:
        """Put what is new out of use; says what it was called and is called."""
        for tree, known in self.known.items():
            yield from disable_triggers(tree, known, git=self._git, without=self._guarded)

    @property
    def is_behind(self) -> bool:
        """Whether there is something to look at that `descriptor` does not tell of."""
        return self._missed or self._blind

    def appeared(self) -> str:
        """What ends the command, in words, or nothing."""
        begun = time.monotonic()
        if self._missed or (self._blind and begun >= self._look_at):
            self._missed = False
            for tree in self.known:
                if reason := self._new(tree, ""):
                    return reason
            self._look_at = time.monotonic() + (time.monotonic() - begun) * _SHARE
        until = time.monotonic() + _LONGEST
        for watch, mask, name in self._events():
            if mask & _OVERFLOW or time.monotonic() > until:
                self._missed = True
                return ""
            if watch in self._watched and (
                reason := self._looked_into(*self._watched[watch], name, bool(mask & _FOLDER))
            ):
                return reason
        return ""

    def _looked_into(self, tree: str, folder: str, name: str, is_folder: bool) -> str:
        """What has come up in a folder under a name."""
        of_kind, path = kind(folder, name), f"{folder}{name}"
        if (tree, path) in self._mounted:  # its number may be that of the old one
            return REPLACED
        if path in self._guarded or (tree, path) in self._held:
            return ""
        if of_kind == "setting" or (of_kind == "repository" and not self._git):
            return _APPEARED.format(path)
        if name.casefold() in (*SHAPE, "head") and (reason := self._new(tree, folder)):
            return reason
        return self._new(tree, path) if is_folder else ""

    def _new(self, tree: str, folder: str) -> str:
        known = self.known[tree]
        new = (
            found for found in self._find_triggers(tree, folder.rstrip("/")) if found not in known
        )
        return next((_APPEARED.format(found.path) for found in new if found.kind != "late"), "")

    def _find_triggers(self, tree: str, folder: str) -> list[Trigger]:
        def watch(descriptor: int, path: str) -> None:
            try:
                number = kernel.watch(self.descriptor, descriptor, _MADE)
            except OSError:
                self._blind = True
            else:
                self._watched[number] = (tree, path)

        found = find_triggers(tree, folder, watch, without=self._guarded)
        return [one for one in found if not (self._git and one.kind == "repository")]

    def _events(self) -> Iterator[tuple[int, int, str]]:
        """Of each the number of the watch, what happened, and to which name."""
        events = b""
        with suppress(OSError):
            events = os.read(self.descriptor, _AT_ONCE)
        at = 0
        while at < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size
            yield watch, mask, os.fsdecode(events[at : at + length].rstrip(b"\0"))
            at += length
