"""Where commands and other people's programs run, and what they cannot do there.

Invariant: a command sees the system's programs and libraries, its workspace and what it was
given, and nothing else of the disk; it writes only there; it has no environment, process, socket or
network of ours. `find_sandbox` proves that, by a command that tries, before anything is run.

Here is what nanobot says about it; `nanobot.security.confine` is the program that does it.
"""

from nanobot.security.sandbox.finding import FindSandbox, SandboxFinder, find_sandbox
from nanobot.security.sandbox.kinds import Confined, Found, Kind, Launch, Sandbox, SandboxRefused
from nanobot.security.sandbox.relay import network_relay

__all__ = [
    "Confined",
    "FindSandbox",
    "Found",
    "Kind",
    "Launch",
    "Sandbox",
    "SandboxFinder",
    "SandboxRefused",
    "find_sandbox",
    "network_relay",
]
