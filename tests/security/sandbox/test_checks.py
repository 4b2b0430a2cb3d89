"""Permissions that no configuration can give."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.security.sandbox import Confinement, Sandbox, SandboxRefused

KINDS = (Sandbox("bubblewrap", program="/usr/bin/bwrap"), Sandbox("landlock"))


@pytest.fixture
def home(disk_path: Path) -> Path:
    for name in ("home/state", "home/workspace/inner", "other", "other/inner"):
        (disk_path / name).mkdir(parents=True)
    (disk_path / "link").symlink_to(disk_path / "home")
    return disk_path


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"read_only": ("../x",)}, "not a path in"),
        ({"read_only": ("/etc",)}, "not a path in"),
        ({"read_only": ("a//b",)}, "not a path in"),
        ({"read_only": ("",)}, "not a path in"),
        ({"workspace": "home"}, "nanobot's own files"),
        ({"workspace": "."}, "nanobot's own files"),
        ({"workspace": "gone"}, "there is no folder"),
        ({"extra_read_only": ("home/state",)}, "nanobot's own"),
        ({"extra_read_only": ("link/state",)}, "nanobot's own"),
        ({"extra_read_only": (".",)}, "nanobot's own"),
        ({"extra_read_only": ("home/workspace/inner",)}, "nanobot's own"),
        ({"writable": ("home",)}, "nanobot's own"),
        ({"writable": ("link",)}, "nanobot's own"),
        ({"writable": ("other", "other/inner")}, "overlaps with another"),
        ({"writable": ("other",), "extra_read_only": ("other/inner",)}, "writable folder"),
    ],
)
def test_too_much_is_refused(home: Path, given: dict[str, object], reason: str) -> None:
    fields: dict[str, object] = {"workspace": home / "home/workspace"}
    for name, value in given.items():
        if name in {"writable", "extra_read_only"}:
            assert isinstance(value, tuple)
            fields[name] = tuple(home / one for one in value)
        else:
            fields[name] = home / str(value) if name == "workspace" else value
    for kind in KINDS:
        guarded = replace(kind, private=(home / "home",))
        with pytest.raises(SandboxRefused, match=reason):
            guarded.launch(("true",), Confinement(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("folder", ["/", "/usr", "/etc", "/proc", "/home", "/tmp", "/usr/lib"])
def test_the_system_is_no_workspace(folder: str) -> None:
    for kind in KINDS:
        with pytest.raises(SandboxRefused):
            kind.launch(("true",), Confinement(Path(folder)))


def test_what_is_given_beside_the_home_is_given(home: Path) -> None:
    confined = Confinement(
        home / "home/workspace", extra_read_only=(home / "other/inner",), read_only=("AGENTS.md",)
    )
    for kind in (*KINDS, Sandbox("none")):
        assert kind.launch(("true",), confined).argv[-1] == "true"
