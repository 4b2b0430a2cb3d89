"""A command with network reaches only the addresses that Egress allows."""

from __future__ import annotations

import asyncio
import json
from ipaddress import IPv4Address

import pytest
from msgspec.structs import replace

from nanobot.security.egress import Egress
from nanobot.security.sandbox import Sandbox, SandboxRefused
from nanobot.security.sandbox.relay import network_relay
from tests.security.sandbox.folders import PYTHON, UNSEEN, CommandEnd, SandboxFolders, run_to_end

HEADER = """
import http.client, json, os, socket, sys, urllib.request
def ask(text):
    with socket.create_connection(("127.0.0.1", 3128), 5) as way:
        way.sendall(text.encode())
        said = b""
        while chunk := way.recv(65536):
            said += chunk
        return said.decode()
def first(text):
    return ask(text).split("\\r\\n")[0]
def many():
    return [socket.create_connection(("127.0.0.1", 3128), 5) for _ in range(40)]
port = sys.argv[1]
"""


async def run(bubblewrap: Sandbox, folders: SandboxFolders, script: str, port: int) -> CommandEnd:
    """Run Python inside, with access to `site.test` on that port and no other exception."""
    egress = Egress(allow_hosts=frozenset({f"site.test:{port}"}), resolve=_resolve)
    try:
        async with network_relay(egress) as relay:
            confined = replace(folders.confined, extra_read_only=UNSEEN)
            command = (*PYTHON, "-c", HEADER + script, str(port))
            return await run_to_end(bubblewrap.launch(command, confined, relay))
    finally:
        await egress.close()


async def test_http_goes_through_and_nothing_private_does(
    bubblewrap: Sandbox, folders: SandboxFolders
) -> None:
    async with await asyncio.start_server(_site, "127.0.0.1", 0) as site:
        port = site.sockets[0].getsockname()[1]
        end = await run(
            bubblewrap,
            folders,
            """
print(json.dumps({
    "plain": urllib.request.urlopen(f"http://site.test:{port}/a?b").read().decode(),
    "tunnel": ask(f"CONNECT site.test:{port} HTTP/1.1\\r\\n\\r\\nGET /t HTTP/1.1\\r\\n\\r\\n"),
    "loopback": first(f"CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n"),
    "metadata": first("GET http://169.254.169.254/latest HTTP/1.1\\r\\n\\r\\n"),
    "disguised": first("CONNECT [::ffff:10.0.0.1]:80 HTTP/1.1\\r\\n\\r\\n"),
    "another port": first("CONNECT site.test:1 HTTP/1.1\\r\\n\\r\\n"),
    "no request": first("hello\\r\\n\\r\\n"),
    "no proxy request": first("GET / HTTP/1.1\\r\\n\\r\\n"),
    "endless": first("GET http://site.test/ HTTP/1.1\\r\\nA: " + "a" * 100_000),
    "direct": socket.socket().connect_ex(("127.0.0.1", int(port))) != 0,
    "descriptors": os.listdir("/proc/self/fd"),
    "one too many": many()[-1].recv(1).decode(),
}))
""",
            port,
        )
    said = json.loads(end.output or f'"{end.complaints}"')
    assert said["plain"] == f"GET /a?b for site.test:{port}"
    assert said["tunnel"].endswith("GET /t for nobody")
    for name in ("loopback", "metadata", "disguised", "another port", "no proxy request"):
        assert said[name].startswith("HTTP/1.1 403"), name
    assert said["no request"].startswith("HTTP/1.1 400")
    assert said["endless"].startswith("HTTP/1.1 431")
    assert said["direct"]
    assert said["one too many"] == ""  # closed at once
    assert set(said["descriptors"]) <= {"0", "1", "2", "3"}


async def test_without_its_relay_a_command_does_not_start(
    bubblewrap: Sandbox, folders: SandboxFolders
) -> None:
    launch = bubblewrap.launch(("echo", "ran"), folders.confined, folders.outside / "nothing")
    end = await run_to_end(launch)
    assert (end.code, end.output) == (125, "")
    assert "the network is unavailable" in end.complaints


def test_landlock_says_that_it_has_no_network(folders: SandboxFolders) -> None:
    with pytest.raises(SandboxRefused, match="no network access in this sandbox") as refused:
        Sandbox("landlock").launch(("true",), folders.confined, folders.outside / "relay")
    assert "bubblewrap" in refused.value.hint


async def _resolve(host: str) -> list[IPv4Address]:
    return [IPv4Address("127.0.0.1")]


async def _site(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    hosts = [line[6:] for line in head if line.lower().startswith("host: ")]
    body = f"{head[0].removesuffix(' HTTP/1.1')} for {hosts[0] if hosts else 'nobody'}"
    writer.write(f"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}".encode())
    await writer.drain()
    writer.close()
