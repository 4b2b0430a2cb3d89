"""A shell for the agent: commands in a sandbox, waited for or in the background.

`tools` is what a model sees, `shell` what may run and in what, `processes` whose it is, `process`
one command from its launch to its end.
"""

from nanobot.tools.shell.processes import Processes
from nanobot.tools.shell.shell import AfterUnconfined, Limits, Shell
from nanobot.tools.shell.tools import Exec, ExecKill, ExecRead

__all__ = [
    "AfterUnconfined",
    "Exec",
    "ExecKill",
    "ExecRead",
    "Limits",
    "Processes",
    "Shell",
]
