"""`nanobot doctor`: does everything work, and what to do if not.

It works next to a running gateway and prints no secret. Models are only tried on request
(`--ask-model`), and only then something is changed: the dialect that a trial has shown replaces the
stored one. Exit code 1 if something does not work.
"""

from __future__ import annotations

from collections.abc import Mapping

from nanobot.cli.command import (
    Commands,
    Options,
    log_errors_only,
    print_json,
    print_text,
    settings_or_defaults,
    table,
)


def add_doctor(commands: Commands) -> None:
    """`nanobot doctor`."""
    doctor = commands.add("doctor", "check that everything works, and say what to fix", _doctor)
    asked = "also try each model: an answer, a tool call, a picture; costs tokens and takes time"
    doctor.flag("--ask-model", asked)
    doctor.json()


def _doctor(options: Options) -> int:
    """Print what each check finds, at once: a server that is not there takes seconds. Where the
    configuration is wrong, that is the last finding."""
    from nanobot.app.base import secret_values
    from nanobot.cli.checks import CHECKS, CheckContext, safely
    from nanobot.clock import SystemClock
    from nanobot.security.redaction import Redactor

    log_errors_only()
    settings = settings_or_defaults(options.home)
    case = CheckContext(settings, SystemClock(settings.agent.timezone), options.ask_model)
    redactor = Redactor(secret_values(settings))
    found: list[dict[str, str]] = []
    for name, check in CHECKS.items():
        for finding in safely(check(case)):
            text, hint = redactor.redact(finding.text), redactor.redact(finding.hint)
            found.append({"check": name, "state": finding.state, "text": text, "hint": hint})
            if not options.json:
                print_text(_lines(found[-1]))
        if name == "configuration" and found[-1]["state"] == "fail":
            break
    if options.json:
        print_json(found)
    return 1 if any(one["state"] == "fail" for one in found) else 0


def _lines(data: Mapping[str, str]) -> str:
    first, *more = [*data["text"].splitlines(), *data["hint"].splitlines()] or [""]
    beneath = [(" " * 4, " " * 14, line.strip()) for line in more if line.strip()]
    return table([(data["state"].ljust(4), data["check"].ljust(14), first), *beneath])
