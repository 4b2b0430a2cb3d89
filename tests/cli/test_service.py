"""`nanobot service`: requests to systemd, the unit file, and output for people.

Three scripts on the path play systemd. Each records its calls and reads its answers from files."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nanobot.cli.main import main
from nanobot.gateway.lock import home_lock

SCRIPT = """\
#!/bin/sh
cd {folder}
echo "${{0##*/}} $*" >>calls
fail() {{ test ! -e "$1" || {{ cat "$1" >&2; exit "$2"; }}; }}
case "$*" in
    *daemon-reload*) fail no-bus 1 ;;
    *" show "*) cat facts ;;
    *"start "*) fail broken 1 ;;
    *"disable "*) fail stuck 1 ;;
    *ProtectSystem=*) fail open 226 ;;
    *SystemCallFilter=*) fail unusable 1 ;;
    *--output=cat*) cat last-words ;;
esac
"""
RUNS = (
    "ActiveState=active\nSubState=running\nUnitFileState=enabled\nMainPID=77\nNRestarts=2\n"
    "Result=success\nExecMainStatus=0\nStatusText=ok\n"
    "ActiveEnterTimestamp=Sun 2026-11-22 12:53:14 UTC\n"
)
FAILED = "ActiveState=failed\nSubState=failed\nResult=exit-code\nExecMainStatus=78\nMainPID=0\n"


@dataclass(frozen=True, slots=True)
class FakeSystemd:
    folder: Path
    home: Path

    @property
    def unit(self) -> Path:
        return self.folder / "config" / "systemd" / "user" / "nanobot.service"

    @property
    def lines(self) -> list[str]:
        return self.unit.read_text().splitlines()

    def says(self, name: str, text: str = "") -> None:
        (self.folder / name).write_text(text)

    def calls(self) -> list[str]:
        """Return the calls since the last time, without trials of programs."""
        path = self.folder / "calls"
        said = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        kept = [call.removeprefix("systemctl --user ") for call in said]
        return [call for call in kept if not call.startswith(("systemd-run", "show"))]


@pytest.fixture
def systemd(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystemd:
    folder = tmp_path / "systemd"
    (folder / "bin").mkdir(parents=True)
    for name in ("systemctl", "systemd-run", "journalctl"):
        program = folder / "bin" / name
        program.write_text(SCRIPT.format(folder=folder))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("NANOBOT_HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    fake = FakeSystemd(folder, home)
    for name, text in (("facts", RUNS), ("last-words", "")):
        fake.says(name, text)
    return fake


def configure(home: Path, text: str) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text(text)
    (home / "config.yaml").chmod(0o600)


def test_installing_writes_enables_and_starts_and_again_only_starts(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["service", "install"]) == 0
    assert capsys.readouterr().out.startswith("nanobot.service is installed and running, pid 77.\n")
    assert systemd.calls() == [
        *("daemon-reload", "daemon-reload"),
        *("enable --quiet nanobot.service", "restart nanobot.service"),
    ]
    assert stat.S_IMODE(systemd.unit.stat().st_mode) == 0o644
    assert stat.S_IMODE(systemd.home.stat().st_mode) == 0o700
    written = systemd.unit.stat()

    assert main(["service", "install"]) == 0
    assert capsys.readouterr().out.startswith("nanobot.service is installed and running, pid 77.\n")
    assert systemd.calls() == [
        *("daemon-reload", "enable --quiet nanobot.service", "start nanobot.service"),
    ]
    again = systemd.unit.stat()
    assert (again.st_ino, again.st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


@pytest.mark.parametrize("scope", [(), ("--system", "--user", "daemon")], ids=["user", "system"])
def test_a_dry_run_prints_a_unit_that_systemd_takes_and_changes_nothing(
    systemd: FakeSystemd, capfd: pytest.CaptureFixture[str], scope: tuple[str, ...]
) -> None:
    assert main(["--home", f"{systemd.home} %n", "service", "install", "--dry-run", *scope]) == 0
    text = capfd.readouterr().out

    assert systemd.calls() == []
    assert not systemd.home.exists()
    assert not systemd.unit.exists()
    assert f'Environment="NANOBOT_HOME={systemd.home} %%n"\n' in text
    if shutil.which("systemd-analyze") is None:
        return
    file = systemd.folder / "nanobot.service"
    file.write_text(text)
    verify = ["systemd-analyze", "verify", "--man=no", str(file)]
    done = subprocess.run(verify, capture_output=True, text=True, timeout=20, check=False)
    assert [line for line in done.stderr.splitlines() if "nanobot.service" in line] == []


def test_a_service_of_ones_own_has_the_home_of_every_other_command(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NANOBOT_HOME")
    monkeypatch.setenv("HOME", str(systemd.folder))
    assert main(["service", "install", "--dry-run"]) == 0
    assert f"Environment=NANOBOT_HOME={systemd.folder / '.nanobot'}\n" in capsys.readouterr().out


def test_the_unit_holds_no_secret_and_what_only_the_shell_knows_is_refused(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(systemd.home, "model:\n  name: tiny\n  api_key: ${TINY_KEY}\n")
    monkeypatch.setenv("TINY_KEY", "key-from-the-shell")

    assert main(["service", "install"]) == 78
    said = capsys.readouterr().err
    assert "the variable TINY_KEY is not set" in said
    assert f"add a line TINY_KEY=… to {systemd.home}/secrets.env" in said
    assert not systemd.unit.exists()

    (systemd.home / "secrets.env").write_text("TINY_KEY=key-from-the-file\n")
    (systemd.home / "secrets.env").chmod(0o600)
    assert main(["service", "install"]) == 0
    assert "key-from" not in systemd.unit.read_text()


def test_folders_that_the_configuration_gives_away_can_be_written(systemd: FakeSystemd) -> None:
    server = "{command: x, writable: [/srv/notes]}"
    configure(systemd.home, f"backup:\n  folder: /mnt/b\nmcp:\n  servers:\n    x: {server}\n")
    assert main(["service", "install"]) == 0
    assert f"ReadWritePaths=-{systemd.home} -/mnt/b -/srv/notes" in systemd.lines


def test_folders_are_those_of_the_account_that_the_service_runs_as(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(systemd.home, "backup:\n  folder: ~/kept\n")
    home = f"{systemd.folder}/../{systemd.home.relative_to(systemd.folder.parent)}"
    other = ("--system", "--user", "nobody")
    assert main(["--home", home, "service", "install", "--dry-run", *other]) == 0
    text = capsys.readouterr().out
    kept = Path(pwd.getpwnam("nobody").pw_dir) / "kept"
    assert f"Environment=NANOBOT_HOME={systemd.home}\n" in text
    assert f"ReadWritePaths=-{systemd.home} -{kept}\n" in text


@pytest.mark.parametrize(
    "config",
    [
        "tools:\n  exec:\n    sandbox: none\n",
        "model:\n  speech:\n    command: [espeak-ng]\n    sandbox: false\n",
    ],
)
def test_commands_that_the_owner_lets_out_are_not_shut_in_by_the_unit(
    systemd: FakeSystemd, config: str
) -> None:
    configure(systemd.home, config)
    assert main(["service", "install"]) == 0
    assert not [line for line in systemd.lines if line.startswith(("Protect", "Private"))]
    assert "NoNewPrivileges=yes" in systemd.lines


def test_what_the_machine_cannot_do_is_left_out_and_said(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    systemd.says("open")
    assert main(["service", "install"]) == 0
    assert (
        "warning: the service runs without restrictions, because this machine rejects them:"
        " exit code 226\n" in capsys.readouterr().err
    )
    assert not [line for line in systemd.lines if line.startswith(("Protect", "Private"))]


def test_a_program_that_does_not_run_there_is_not_installed(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    systemd.says("open")
    systemd.says("unusable", "No module named x\n")
    assert main(["service", "install"]) == 1
    assert "does not run: No module named x\n" in capsys.readouterr().err
    assert not systemd.unit.exists()


def test_where_systemd_cannot_be_asked_its_own_words_are_shown_and_nothing_is_written(
    systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    systemd.says("no-bus", "Failed to connect to bus: No medium found\n")
    assert main(["service", "install"]) == 1
    assert "Failed to connect to bus: No medium found\n" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(systemd.folder))
    assert main(["service", "install"]) == 1
    assert "You can run `nanobot gateway` without systemd" in capsys.readouterr().err
    assert not systemd.unit.exists()
    assert not systemd.home.exists()


def test_an_account_that_is_missing_is_named_with_the_command_that_makes_it(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    if any(one.pw_name == "nanobot" for one in pwd.getpwall()):
        pytest.skip("this machine has the account")
    assert main(["service", "install", "--system"]) == 1
    assert "`sudo useradd --system" in capsys.readouterr().err


def test_programs_are_sought_where_nobody_else_can_put_one(
    systemd: FakeSystemd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybodys = tmp_path / "everybodys"
    everybodys.mkdir()
    everybodys.chmod(0o777)
    path = f"{systemd.folder / 'bin'}:{everybodys}:relative::/usr/bin:{tmp_path}/none:/bin"
    monkeypatch.setenv("PATH", path)
    assert main(["service", "install"]) == 0
    (line,) = (one for one in systemd.lines if one.startswith("Environment=PATH="))
    usual = ["/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/sbin"]
    assert line.partition("PATH=")[2].split(":") == [
        str(systemd.folder / "bin"), "/usr/bin", *usual,
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["install", "uninstall", "status"])
def test_a_unit_file_of_somebody_else_is_left_alone(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    systemd.unit.parent.mkdir(parents=True)
    systemd.unit.write_text("[Service]\nExecStart=/bin/true\n")
    assert main(["service", command]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert systemd.lines == ["[Service]", "ExecStart=/bin/true"]
    assert systemd.calls() == []


def test_a_second_home_needs_a_name_of_its_own(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["service", "install"]) == 0
    other = ["--home", f"{systemd.home}-2", "service", "install"]
    assert main(other) == 1
    assert (
        f"nanobot.service already exists for the home {systemd.home}\n" in capsys.readouterr().err
    )
    assert main([*other, "--name", "work"]) == 0
    assert systemd.unit.with_name("nanobot-work.service").exists()
    assert f"Environment=NANOBOT_HOME={systemd.home}" in systemd.lines


def test_a_home_that_a_gateway_already_uses_is_refused_before_anything_is_written(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    with home_lock(systemd.home / "state"):
        assert main(["service", "install"]) == 75
        assert f"another nanobot (pid {os.getpid()}) is using" in capsys.readouterr().err
        assert not systemd.unit.exists()
        systemd.says("facts", RUNS.replace("=77", f"={os.getpid()}"))  # it is the service itself
        assert main(["service", "install"]) == 0


def test_a_start_that_fails_shows_the_last_words(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    systemd.says("broken", "Job failed.\n")
    said = "2026-11-22 12:53:14 INFO    ready\nerror: config.yaml:3: no such key\n"
    systemd.says("last-words", f"{said}Try \x1b[2Janother.\n")
    assert main(["service", "install"]) == 1
    assert capsys.readouterr().err.endswith(
        "error: nanobot.service is installed but does not start:\n"
        "2026-11-22 12:53:14 INFO    ready\n"
        "error: config.yaml:3: no such key\nTry another.\n"
        "  See `nanobot service logs`. Fix the cause, then install the service again.\n"
    )


def test_uninstalling_takes_the_unit_and_leaves_the_home(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["service", "install"]) == 0
    systemd.calls()
    assert main(["service", "uninstall"]) == 0
    assert systemd.calls() == [
        "disable --now --quiet nanobot.service", "daemon-reload", "reset-failed nanobot.service",
    ]  # fmt: skip
    assert systemd.home.is_dir()
    assert not systemd.unit.exists()
    assert main(["service", "uninstall"]) == 0
    assert capsys.readouterr().out.endswith("nanobot.service does not exist.\n")
    assert systemd.calls() == []


def test_a_service_that_cannot_be_stopped_is_not_taken_away(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["service", "install"]) == 0
    systemd.says("stuck", "Failed to stop nanobot.service: Access denied\n")
    assert main(["service", "uninstall"]) == 1
    assert "Access denied" in capsys.readouterr().err
    assert systemd.unit.exists()


@pytest.mark.parametrize(
    ("facts", "health", "code", "shown"),
    [
        (RUNS, {"state": "ok", "concerns": []}, 0, "health   ok\n"),
        (
            RUNS,
            {"state": "failing", "concerns": [{"text": "no poll\x1b[2J", "hint": "Look."}]},
            1,
            "health   failing\n  no poll\n  Look.\n",
        ),
        (FAILED, None, 1, "service  failed (failed), unknown\n"),
    ],
    ids=["well", "ill", "failed"],
)
def test_status_is_what_systemd_and_the_gateway_say(
    systemd: FakeSystemd,
    gateway: Any,
    capsys: pytest.CaptureFixture[str],
    facts: str,
    health: dict[str, object] | None,
    code: int,
    shown: str,
) -> None:
    assert main(["service", "install"]) == 0
    capsys.readouterr()
    systemd.says("facts", facts)
    gateway.answers["status"] = {} if health is None else {"health": health}
    assert main(["service", "status"]) == code
    assert shown in capsys.readouterr().out
    assert main(["service", "status", "--json"]) == code
    data = json.loads(capsys.readouterr().out)
    assert data["running"] is (facts == RUNS)
    assert data["home"] == str(systemd.home)
    assert data["health"] == (health or {"state": ""})


def test_logs_are_those_of_the_journal(
    systemd: FakeSystemd, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["service", "install"]) == 0
    assert "Environment=NANOBOT_LOG__FORMAT=text" in systemd.lines
    capfd.readouterr()
    systemd.says("last-words", "Started.\n")
    assert main(["service", "logs", "-n", "7"]) == 0
    assert capfd.readouterr().out == "Started.\n"
    assert systemd.calls()[-1] == (
        "journalctl --user --unit nanobot.service --lines 7 --no-pager --quiet --output=cat"
    )
