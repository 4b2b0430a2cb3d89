"""A helper controlled by a test: lines of the daemon go to `control.sock` in its folder, and lines
from there go to the daemon. Lines that begin with `!` are orders for the helper:

`!print TEXT`, `!exit STATUS`, `!hangup`, `!stay` (it no longer ends with its connection).

Run as `python fake_helper.py MAIN --socket NAME --folder .`. Needs only the standard library."""

import select
import socket
import sys


def connect(name: str) -> socket.socket:
    """Connect to a socket in the current folder."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(name)
    return link


def obey(order: str, link: socket.socket) -> None:
    """Run an order."""
    verb, _, argument = order.partition(" ")
    if verb == "print":
        print(argument, file=sys.stderr, flush=True)
    elif verb == "exit":
        sys.exit(int(argument))
    elif verb == "hangup":
        link.shutdown(socket.SHUT_RDWR)


def main() -> None:
    """Forward lines until either side ends."""
    stays = False
    control = connect("control.sock")
    link = connect(sys.argv[sys.argv.index("--socket") + 1])
    rest = b""
    sources = [control, link]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if link in ready:
            said = link.recv(65536)
            if not said and not stays:
                return
            if not said:
                sources.remove(link)
            control.sendall(said)
        if control in ready:
            orders = control.recv(65536)
            if not orders:
                return
            *lines, rest = (rest + orders).split(b"\n")
            for line in lines:
                if line.startswith(b"!"):
                    stays = stays or line in {b"!stay", b"!hangup"}
                    obey(line[1:].decode(), link)
                else:
                    link.sendall(line + b"\n")


main()
