"""A helper with a script: it sends the lines of the first of the files `script-*` in its folder,
and removes the file. If the last line contains PING, it is repeated after each ping, with the
ping's number in place of the word. It stores the received welcome, and ends with its connection.

Run as the `node` of a test: `python scripted_helper.py MAIN --socket NAME --folder FOLDER`."""

import json
import socket
import sys
from pathlib import Path

_HELLO = b'{"type":"hello","protocol":1,"bridge":"0.1.0","baileys":"7","node":"v22.1.0","pid":1}\n'


def main() -> None:
    """Send the hello, read the welcome, send the script, wait."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(sys.argv[3])
    link.sendall(_HELLO)
    with link.makefile("rb") as lines:
        Path("welcome").write_bytes(lines.readline())
        script = min(Path().glob("script-*"))
        content = script.read_bytes()
        script.unlink()
        link.sendall(content)
        repeated = content.splitlines(keepends=True)[-1] if b"PING" in content else b""
        while line := lines.readline():
            number = b"%d" % json.loads(line)["id"]
            pong = b'{"type":"pong","id":%s}\n' % number
            link.sendall(pong + repeated.replace(b"PING", number))


main()
