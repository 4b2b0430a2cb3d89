"""`nanobot doctor`: whether everything works, and what to do where it does not.

Nothing is changed, no model is asked anything, and what is printed holds no secret. Exit code 1
where something does not work.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nanobot.cli.admin import put, to_json
from nanobot.cli.doctor_checks import Finding, findings_of, home_findings
from nanobot.cli.show import table
from nanobot.errors import ConfigError
from nanobot_cli.plain import clean


def examine(home: Path, *, as_json: bool) -> int:
    """`nanobot doctor`."""
    from nanobot.config import load_settings
    from nanobot.logs import log_to_console
    from nanobot.security.redaction import Redactor

    log_to_console("error", Redactor())
    findings = home_findings(home)
    try:
        settings = load_settings(home)
    except ConfigError as error:
        wrong = Finding("configuration", "fail", str(error), error.hint)
        return _told([wrong, *findings], as_json=as_json)
    return _told([*findings, *findings_of(settings)], as_json=as_json)


def _told(findings: Sequence[Finding], *, as_json: bool) -> int:
    failed = any(finding.state == "fail" for finding in findings)
    put(to_json([_data(f) for f in findings]) if as_json else "".join(map(_lines, findings)))
    return 1 if failed else 0


def _data(finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "state": finding.state,
        "text": finding.text,
        "hint": finding.hint,
    }


def _lines(finding: Finding) -> str:
    first, *more = clean(finding.text).splitlines() or [""]
    more += clean(finding.hint).splitlines()
    head = table([(finding.state.ljust(4), finding.check.ljust(14), first)])
    return head + "".join(f"{'':22}{line.strip()}\n" for line in more if line.strip())
