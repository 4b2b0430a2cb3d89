"""`nanobot doctor`: whether everything works, and what to do where it does not.

Nothing is changed, it works beside a running gateway, and what is printed holds no secret. No model
is asked anything, unless that is wished for. Exit code 1 where something does not work.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from nanobot.cli.admin import put, to_json
from nanobot.cli.doctor.finding import Case, Finding
from nanobot.cli.show import table
from nanobot.errors import ConfigError
from nanobot_cli.text import clean


def examine(home: Path, *, ask_model: bool, as_json: bool) -> int:
    """`nanobot doctor`."""
    from nanobot.cli.doctor.examination import findings_of, findings_without
    from nanobot.clock import SystemClock
    from nanobot.config.load import load_settings
    from nanobot.logs import log_to_console
    from nanobot.security.redaction import Redactor

    log_to_console("error", Redactor())
    try:
        settings = load_settings(home)
    except ConfigError as error:
        wrong = Finding("configuration", "fail", str(error), error.hint)
        return _told([*findings_without(home), wrong], as_json=as_json)
    case = Case(settings, SystemClock(settings.agent.timezone), ask_model)
    return _told(findings_of(case), as_json=as_json)


def _told(findings: Iterable[Finding], *, as_json: bool) -> int:
    told = []
    for finding in findings:
        told.append(finding)
        if not as_json:  # at once: a server that is not there takes seconds
            put(_lines(finding))
            sys.stdout.flush()
    if as_json:
        put(to_json(list(map(_data, told))))
    return 1 if any(finding.state == "fail" for finding in told) else 0


def _data(finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "state": finding.state,
        "text": finding.text,
        "hint": finding.hint,
    }


def _lines(finding: Finding) -> str:
    left = (finding.state.ljust(4), finding.check.ljust(14))
    text, *more = clean(finding.text).splitlines() or [""]
    more += clean(finding.hint).splitlines()
    beneath = tuple(" " * len(cell) for cell in left)
    rows = [(*left, text), *((*beneath, line.strip()) for line in more if line.strip())]
    return table(rows)
