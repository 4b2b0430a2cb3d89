"""The tests themselves: they work even if signals are ignored at their start."""

from __future__ import annotations

import subprocess
import sys

from tests.signals import IGNORED_BY_SHELLS

BEGUN = f"""
import signal, subprocess, sys
for number in {[int(number) for number in IGNORED_BY_SHELLS]}:
    signal.signal(number, signal.SIG_IGN)
sys.exit(subprocess.call([sys.executable, "-c", {{!r}}], restore_signals=False))
"""
TESTS = """
import subprocess, sys
import tests.conftest
shown = "import signal; print([signal.getsignal(n) for n in (2, 3, 1)])"
sys.exit(subprocess.call([sys.executable, "-c", shown]))
"""


def test_what_tests_start_gets_signals_that_a_shell_had_ignored() -> None:
    begun = BEGUN.format(TESTS)
    done = subprocess.run([sys.executable, "-c", begun], capture_output=True, text=True, check=True)
    assert "SIG_IGN" not in done.stdout
    assert "default_int_handler" in done.stdout
    without = BEGUN.format(TESTS.replace("import tests.conftest", ""))
    ignored = subprocess.run(
        [sys.executable, "-c", without], capture_output=True, text=True, check=True
    )
    assert ignored.stdout.count("SIG_IGN") == len(IGNORED_BY_SHELLS)
