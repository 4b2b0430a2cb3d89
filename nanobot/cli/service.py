"""`nanobot service`: run nanobot with systemd.

Foreign unit files are never changed, and the home is never removed."""

from __future__ import annotations

import argparse
import os
import pwd
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot.cli.client import Data
from nanobot.cli.command import Commands, Options, Parser, indent, print_text, table, write_stdout
from nanobot.cli.gateway import expect_free, when_free
from nanobot.cli.status import of_gateway
from nanobot.cli.unit import Unit, UnitPlace, home_in
from nanobot.errors import HomeLocked, NanobotError
from nanobot.programs import Launch, environment, is_trusted, program
from nanobot.text import expanduser

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from nanobot.config.model import VoiceProgram
    from nanobot.config.tools import ExecSettings, McpServerSettings

    Programs = Sequence[McpServerSettings | VoiceProgram]
    Answer = CompletedProcess[str]

_SECONDS = 240.0  # timeout of a call, longer than a start may take

_FACTS = "ActiveState,SubState,UnitFileState,MainPID,ActiveEnterTimestamp,StatusText"
_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_DEDICATED = "nanobot"
_USERADD = "sudo useradd --system --user-group --create-home --home-dir /var/lib/nanobot nanobot"


def add_service(service: Parser) -> None:
    what = service.group(
        "Run nanobot as a systemd service that starts at boot and restarts after a failure."
    )
    install = _add(what, "install", "install or update the service and start it", install_service)
    install.option(
        "--user", "NAME", "with --system: the user to run the service as", default=_DEDICATED
    )
    install.flag("--no-start", "install the service, but do not start it now")
    install.flag("--dry-run", "print the unit file and change nothing")
    _add(what, "uninstall", "stop the service and remove it", uninstall_service)
    _add(what, "status", "show the service's state and health", show_status).json()
    logs = _add(what, "logs", "show the service's log", show_log)
    logs.count(50, "lines")
    logs.flag("--follow", "keep printing new lines until Ctrl-C", "-f")


def _add(commands: Commands, name: str, summary: str, run: Callable[[Options], int]) -> Parser:
    parser = commands.add(name, summary, run)
    parser.flag("--system", "use a system service instead of a user service")
    further = "the name of an additional service (its unit is nanobot-NAME)"
    return parser.option("--name", "NAME", further, type=_name, default="")


def _name(text: str) -> str:
    if text and not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} can contain only letters, digits, -, and _")
    return text


def runs_systemd() -> bool:
    """Return True if systemd runs this machine."""
    return Path("/run/systemd/system").is_dir()


def lingers(user: str) -> bool:
    """Return True if a user's services run while the user is not logged in."""
    return Path("/var/lib/systemd/linger", user).exists()


def me() -> pwd.struct_passwd:
    """Return the account of this process."""
    return pwd.getpwuid(os.geteuid())


class Systemd:
    """The system manager, or the manager of the current user."""

    def __init__(self, place: UnitPlace) -> None:
        self._scope = () if place.system else ("--user",)
        self._unit = place.unit

    def launch(self, name: str, *words: str) -> Launch:
        """Return the launch of a systemd program, with the variables that locate the user's
        manager: `su` and `sudo` leave them out."""
        runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
        kept = environment(
            "DBUS_SESSION_BUS_ADDRESS|XDG_CONFIG_HOME", XDG_RUNTIME_DIR=runtime, LC_ALL="C.UTF-8"
        )
        return Launch((program(name), *self._scope, *words), kept)

    def call(self, *words: str, may_fail: bool = False) -> Answer:
        """Run systemctl. Raises `NanobotError` if it fails, unless it `may_fail`."""
        answer = self._run("systemctl", *words)
        if answer.returncode and not may_fail:
            command = " ".join(("systemctl", *self._scope, *words))
            hint = (
                "docs/systemd.md lists the usual causes. You can run `nanobot gateway` without "
                "systemd."
            )
            raise NanobotError(f"{command}: {_last_line(answer)}", hint=hint)
        return answer

    def facts(self) -> dict[str, str]:
        """Return the properties of the unit, by name."""
        answer = self._run("systemctl", "show", self._unit, f"--property={_FACTS}")
        pairs = (line.partition("=") for line in answer.stdout.splitlines())
        return {key: value for key, _, value in pairs}

    def trial(self, unit: Unit) -> Answer:
        """Run the unit's program, with its hardening, to print its version."""
        options = [f"--property={line}" for line in unit.restrictions.splitlines()]
        options += [f"--property=User={unit.user}"] if unit.user else []
        words = ("--quiet", "--wait", "--collect", "--pipe", *options, f"--setenv=PATH={unit.path}")
        return self._run("systemd-run", *words, *unit.command[:-1], "--version")

    def journal(self, count: int) -> Sequence[str]:
        """Return the command that shows the unit's last journal lines."""
        words = ("--lines", str(count), "--no-pager", "--quiet", "--output=cat")
        return ("journalctl", "--unit", self._unit, *words)

    def last_words(self) -> str:
        return self._run(*self.journal(6)).stdout.strip()

    def _run(self, name: str, *words: str) -> Answer:
        """Run a program and return its answer. If it does not start or times out, the exit code is
        1 and the output is the reason."""
        import subprocess

        try:
            return self.launch(name, *words).run(_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(name, 1, "", str(error))


def _last_line(answer: Answer) -> str:
    lines = (answer.stderr or answer.stdout).strip().splitlines()
    return lines[-1].strip() if lines else f"exit code {answer.returncode}"


def install_service(options: Options) -> int:
    """Check everything possible before anything is changed, then install."""
    place = UnitPlace(options.name, options.system)
    who = _find_account(options.user) if place.system else me()
    unit = _plan_unit(options, place, who)
    text = unit.text
    if options.dry_run:
        print_text(f"This would be written to {place.file}:\n\n", sys.stderr)
        return write_stdout(text)
    systemd, before = Systemd(place), _expect_ours(place)
    systemd.call("daemon-reload")
    _expect_free(place, before, unit.home, systemd)
    from nanobot.io import replace_file, storage_errors

    with storage_errors(unit.home):
        if not unit.home.exists():
            unit.home.mkdir(mode=0o700, parents=True)
            if place.system:
                # The account may own the parent folder and replace the home by a link.
                os.chown(unit.home, who.pw_uid, who.pw_gid, follow_symlinks=False)
    text = _try_unit(unit, systemd).text
    if text != before:
        with storage_errors(place.file):
            place.file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(place.file, text.encode(), 0o644)
        systemd.call("daemon-reload")
    systemd.call("enable", "--quiet", place.unit)
    if not options.no_start:
        answer = systemd.call("restart" if text != before else "start", place.unit, may_fail=True)
        if answer.returncode:
            said = systemd.last_words() or _last_line(answer)
            hint = (
                f"See `nanobot service logs{place.options}`. Fix the cause, then install the "
                "service again."
            )
            raise NanobotError(f"{place.unit} is installed but does not start:\n{said}", hint=hint)
    return print_text(_format_report(place, unit, systemd))


def _find_account(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        hint = (
            f"Create it with `{_USERADD}`."
            if name == _DEDICATED
            else "Choose another user with --user."
        )
        raise NanobotError(f"there is no user {name!r}", hint=hint) from None


def _plan_unit(options: Options, place: UnitPlace, who: pwd.struct_passwd) -> Unit:
    """Return the unit to install. Raises `ConfigError` if the gateway would not start."""
    from nanobot.config.load import load_settings

    home = options.home
    if place.system and not (options.given_home or os.environ.get("NANOBOT_HOME", "").strip()):
        home = Path(who.pw_dir, ".nanobot")
    home = Path(os.path.normpath(home))  # systemd rejects `..`
    folders = filter(is_trusted, os.environ.get("PATH", "").split(":"))
    path = ":".join(dict.fromkeys((*folders, *_FOLDERS)))
    settings = load_settings(home, {"HOME": who.pw_dir, "PATH": path})  # as a service reads it
    command = [str(Path(sys.executable).parent / "nanobot")]
    if not os.access(command[0], os.X_OK):
        command = [sys.executable, "-P", "-m", "nanobot"]
    tools = settings.tools.exec
    servers = settings.mcp.active.values()
    programs: Programs = [*servers, settings.model.transcription, settings.model.speech]
    writable = [*map(str, settings.folders)]
    if settings.backup.folder:
        folder = home / expanduser(settings.backup.folder, who.pw_dir)
        writable.append(os.path.normpath(folder))
    writable += chain.from_iterable(server.writable for server in servers)
    shown = chain.from_iterable(program.paths for program in programs)
    return Unit(
        command=(*command, "gateway"),
        home=home,
        path=path,
        grace_seconds=settings.agent.shutdown_grace_seconds,
        user=who.pw_name if place.system else "",
        writable=tuple(dict.fromkeys(writable)),
        readable=(sys.prefix, sys.base_prefix, *tools.paths, *shown),
        is_hardened=not _lets_out(tools, programs),
    )


def _lets_out(tools: ExecSettings, programs: Programs) -> bool:
    """Return True if the owner gives commands or programs all permissions of the account. Then the
    unit does not restrict them."""
    return (tools.enabled and tools.sandbox == "none") or any(
        one.command and not one.sandbox for one in programs
    )


def _expect_ours(place: UnitPlace) -> str:
    """Return the present unit file. Raises `NanobotError` if we may not change it."""
    if place.system and os.geteuid():
        hint = "Use sudo, or leave out --system for a user service."
        raise NanobotError("only root can change a system service", hint=hint)
    text = place.read()
    if text and home_in(text) is None:
        raise NanobotError(
            f"{place.file} was not written by `nanobot service install`",
            hint="Move it away, or choose another name with --name.",
        )
    return text


def _expect_free(place: UnitPlace, before: str, home: Path, systemd: Systemd) -> None:
    """Raise an error if another gateway runs on the home, or the unit belongs to another home."""
    if (installed := home_in(before)) not in (None, home):
        raise NanobotError(
            f"{place.unit} already exists for the home {installed}",
            hint=f"To update it, add `--home {installed}`. To create another service, add --name.",
        )
    try:
        when_free(lambda: expect_free(home))
    except HomeLocked as error:
        if not error.pid or str(error.pid) != systemd.facts().get("MainPID"):
            raise


def _try_unit(unit: Unit, systemd: Systemd) -> Unit:
    """Return the unit with the hardening that this machine supports. Raises `NanobotError` if its
    program does not run."""
    answer = systemd.trial(unit)
    if not answer.returncode:
        return unit
    plain = unit._replace(is_hardened=False)
    again = systemd.trial(plain)
    if again.returncode:
        hint = "Install nanobot in a readable folder, such as /opt/nanobot, and run it from there."
        who = f" as {unit.user}" if unit.user else ""
        raise NanobotError(f"{unit.command[0]} does not run{who}: {_last_line(again)}", hint=hint)
    said = (
        "warning: the service runs without restrictions, because this machine rejects them: "
        f"{_last_line(answer)}\n"
    )
    print_text(said, sys.stderr)
    return plain


def _format_report(place: UnitPlace, unit: Unit, systemd: Systemd) -> str:
    facts = systemd.facts()
    is_active = facts.get("ActiveState") == "active"
    runs = f"running, pid {facts.get('MainPID')}" if is_active else "not running"
    text = f"{place.unit} is installed and {runs}.\n  unit  {place.file}\n"
    text += f"  home  {unit.home}{f', as {unit.user}' if unit.user else ''}\n"
    if unit.user:
        text += (
            f"Run other commands for this service with `sudo -Hu {unit.user} "
            f"{unit.command[0]} …`.\n"
        )
    elif not lingers(me().pw_name):
        text += "The service runs only while you are logged in. To keep it running, run"
        text += f" `sudo loginctl enable-linger {me().pw_name}`.\n"
    return f"{text}Check it with `nanobot service status{place.options}`.\n"


def uninstall_service(options: Options) -> int:
    from nanobot.io import storage_errors

    place = UnitPlace(options.name, options.system)
    before = _expect_ours(place)
    if not before:
        return print_text(f"Nothing to remove: {place.file} does not exist.\n")
    systemd = Systemd(place)
    systemd.call("disable", "--now", "--quiet", place.unit)
    with storage_errors(place.file):
        place.file.unlink(missing_ok=True)
    systemd.call("daemon-reload", may_fail=True)
    systemd.call("reset-failed", place.unit, may_fail=True)
    return print_text(f"{place.unit} was stopped and removed. {home_in(before)} was kept.\n")


def _home_of(place: UnitPlace) -> Path:
    """Return the home of the installed service. Raises `NanobotError` if it is not
    installed."""
    if (home := home_in(place.read())) is None:
        hint = f"Install it with `nanobot service install{place.options}`."
        raise NanobotError(
            f"the service is not installed: {place.file} is missing or was not written by nanobot",
            hint=hint,
        )
    return home


def show_status(options: Options) -> int:
    """Return 1 if the service does not run or is failing."""
    place = UnitPlace(options.name, options.system)
    home, facts = _home_of(place), Systemd(place).facts()
    health = Data()
    with suppress(NanobotError):  # another user's gateway, or it is ending
        health = (of_gateway(home) or Data()).record("health")
    state = (facts.get(key, "unknown") for key in ("ActiveState", "SubState", "UnitFileState"))
    data = {
        "unit": place.unit,
        "file": str(place.file),
        "home": str(home),
        "running": facts.get("ActiveState") == "active",
        "state": "{} ({}), {}".format(*state),
        "since": facts.get("ActiveEnterTimestamp", ""),
        "pid": int(facts.get("MainPID") or 0),
        # The health from the gateway or, for another user's, from systemd.
        "health": health or {"state": facts.get("StatusText", "")},
    }
    options.print_result(data, format_status)
    is_failing = Data(data).record("health").field("state").startswith("failing")
    return 0 if data["running"] and not is_failing else 1


def format_status(data: Data) -> str:
    health = data.record("health")
    rows = [
        ("service", f"{data.field('state')}{', since ' if data['since'] else ''}{data['since']}"),
        ("unit", data.field("file")),
        ("home", data.field("home")),
        ("process", f"pid {data.field('pid')}" if data["running"] else "none"),
        ("health", health.field("state")),
    ]
    text = table(row for row in rows if row[1])
    for concern in health.records("concerns"):
        text += indent(f"{concern.field('text', 500)}\n{concern.field('hint', 500)}")
    return text


def show_log(options: Options) -> int:
    place = UnitPlace(options.name, options.system)
    _home_of(place)
    systemd, follow = Systemd(place), ("--follow",) if options.follow else ()
    try:
        launch = systemd.launch(*systemd.journal(options.n), *follow)
        with launch.popen(stdin=None, stdout=None, stderr=None, session=False) as child:
            return child.wait()
    except OSError as error:
        hint = "`nanobot logs` shows nanobot's own log."
        raise NanobotError(f"cannot show the journal: {error}", hint=hint) from error
