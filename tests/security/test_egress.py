"""Egress on real sockets: no private address is reached, and no request lasts forever. Crossings
are counted at their destination."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest

from nanobot.security.egress import Egress, EgressLimits, EgressRequest, EgressResponse
from nanobot.security.egress.connector import Resolve
from nanobot.security.egress.urls import EgressError, EgressRefused, IpAddress
from tests.doubles.web import FakeWeb, WebConnection, WebRequest

MEGABYTE = 1_000_000
LIMITS = EgressLimits(seconds=5.0, bytes=MEGABYTE)
TRUSTING_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Loading the system's certificates takes longer than any of these tests."""


@pytest.fixture
async def web() -> AsyncIterator[FakeWeb]:
    async with FakeWeb() as site:
        yield site


@asynccontextmanager
async def way_out(
    *allowed: str,
    resolve: Resolve | None = None,
    proxy: str = "",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Egress]:
    egress = Egress(allow_hosts=allowed, resolve=resolve, proxy=proxy, tls=tls or TRUSTING_NOBODY)
    try:
        yield egress
    finally:
        await egress.close()


def answers(*addresses: str) -> Resolve:
    async def resolve(host: str) -> Sequence[IpAddress]:
        return [ip_address(address) for address in addresses]

    return resolve


async def fetch(web: FakeWeb, path: str, limits: EgressLimits = LIMITS) -> EgressResponse:
    async with way_out(web.place) as egress:
        return await egress.fetch(EgressRequest(web.url(path)), limits)


DISGUISES = (
    "127.0.0.1 localhost 127.1 2130706433 0x7f000001 0177.0.0.1 0 0.0.0.0 127.0.0.2 [::1] [::] "
    "[::ffff:127.0.0.1] [::127.0.0.1] [::ffff:0:127.0.0.1] [64:ff9b::127.0.0.1] "
    "[64:ff9b:1::127.0.0.1] [2002:7f00:1::] [2001:0:7f00:1::] [::ffff:7f00:1] [fe80::1] [fc00::1] "
    "169.254.169.254 10.0.0.1 192.168.0.1 localhost. 127.0.0.1. １２７.０.０.１ "
    "example.com@127.0.0.1 ip6-localhost"
)


@pytest.mark.parametrize("host", DISGUISES.split())
async def test_no_disguise_of_this_machine_is_connected_to(host: str) -> None:
    async with FakeWeb("127.0.0.1") as four, FakeWeb("::1") as six, way_out() as egress:
        for port in (four.port, six.port):
            with pytest.raises((EgressRefused, EgressError)):
                await egress.fetch(EgressRequest(f"http://{host}:{port}/"), LIMITS)
            with pytest.raises((EgressRefused, EgressError)):
                await egress.connect(host, port)
        assert four.connections + six.connections == 0


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"], ["0.0.0.0"],
        ["64:ff9b::7f00:1"], ["2002:7f00:1::"], ["169.254.169.254"], ["fe80::1%1"], ["10.0.0.1"],
    ],
)  # fmt: skip
async def test_a_name_with_one_address_that_is_not_public_is_refused(addresses: list[str]) -> None:
    async with FakeWeb() as canary, way_out(resolve=answers(*addresses)) as egress:
        with pytest.raises(EgressRefused):
            await egress.fetch(EgressRequest(f"http://rebound.example:{canary.port}/"), LIMITS)
        assert canary.connections == 0


async def test_a_name_is_looked_up_once_so_a_second_answer_changes_nothing(web: FakeWeb) -> None:
    asked: list[str] = []

    async def rebinding(host: str) -> Sequence[IpAddress]:
        asked.append(host)
        return [ip_address("127.0.0.1" if len(asked) == 1 else "127.0.0.2")]

    web.put("/", "the checked one")
    async with way_out(web.place, resolve=rebinding) as egress:
        url = f"http://rebound.example:{web.port}/"
        answer = await egress.fetch(EgressRequest(url), LIMITS)
        assert (answer.body, asked) == (b"the checked one", ["rebound.example"])
        assert web.requests[0].headers["host"] == f"rebound.example:{web.port}"


@pytest.mark.parametrize(
    "name", ["to-loopback", "to-metadata", "to-mapped", "to-file", "to-nowhere"]
)
async def test_a_redirect_to_what_is_closed_is_refused(web: FakeWeb, name: str) -> None:
    with pytest.raises(EgressRefused):
        await fetch(web, f"/hostile/{name}")


async def test_a_redirect_to_another_port_of_an_allowed_host_is_refused(web: FakeWeb) -> None:
    async with FakeWeb() as canary:
        web.redirect("/", canary.url("/secret"))
        with pytest.raises(EgressRefused):
            await fetch(web, "/")
        assert canary.connections == 0


async def test_ten_thousand_redirects_end_after_a_few(web: FakeWeb) -> None:
    with pytest.raises(EgressError, match="more than 5 redirects"):
        await fetch(web, "/hostile/redirects/0")
    assert len(web.requests) == 6


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("large", "the limit of 1 MB"), ("endless", "the limit of 1 MB"),
        ("gzip-bomb", "the limit of 1 MB"), ("deflate-bomb", "the limit of 1 MB"),
        ("brotli", "unsupported encoding"), ("broken-gzip", "damaged"),
        ("huge-header", "could not be read"), ("many-headers", "could not be read"),
        ("truncated", "could not be read"), ("no-http", "could not be read"),
    ],
)  # fmt: skip
async def test_a_hostile_page_ends_within_its_limits(web: FakeWeb, name: str, reason: str) -> None:
    with pytest.raises(EgressError, match=reason):
        await fetch(web, f"/hostile/{name}")


@pytest.mark.parametrize("name", ["silent", "slow"])
async def test_an_answer_that_does_not_come_ends_in_time(web: FakeWeb, name: str) -> None:
    with pytest.raises(EgressError, match=r"within 0\.05 seconds"):
        await fetch(web, f"/hostile/{name}", EgressLimits(seconds=0.05))


async def test_a_type_that_is_not_wanted_is_not_read(web: FakeWeb) -> None:
    with pytest.raises(EgressError, match="application/zip"):
        await fetch(web, "/hostile/zip", EgressLimits(types=("text/",)))


async def test_a_closed_port_is_not_asked() -> None:
    async with way_out() as egress:
        with pytest.raises(EgressRefused, match="port 25"):
            await egress.connect("93.184.216.34", 25)


async def test_an_error_of_the_other_side_is_an_answer(web: FakeWeb) -> None:
    answer = await fetch(web, "/nothing")
    assert (answer.status, answer.body) == (404, b"not here")


async def test_what_nobody_listens_to_is_an_error() -> None:
    async with FakeWeb() as gone:
        place = gone.place
    async with way_out(place) as egress:
        with pytest.raises(EgressError, match="could not connect"):
            await egress.fetch(EgressRequest(f"http://{place}/"), LIMITS)


async def test_nothing_is_remembered_from_one_request_to_the_next(web: FakeWeb) -> None:
    first = web.put("/first", "x", headers={"Set-Cookie": "id=1; Path=/"})
    async with way_out(web.place) as egress:
        await egress.fetch(EgressRequest(first), LIMITS)
        await egress.fetch(EgressRequest(web.url("/second")), LIMITS)
    sent = web.requests[1].headers
    assert not {"cookie", "referer", "authorization", "from"} & set(sent)
    assert "nanobot/" in sent["user-agent"]


async def test_headers_and_bodies_do_not_follow_a_redirect_elsewhere(web: FakeWeb) -> None:
    async with FakeWeb() as other:
        other.put("/", "there")
        request = EgressRequest(
            web.redirect("/go", other.url("/"), 302), "POST", {"X-Key": "secret"}, b"body"
        )
        async with way_out(web.place, other.place) as egress:
            await egress.fetch(request, LIMITS)
            web.redirect("/go", other.url("/"), 307)
            with pytest.raises(EgressRefused, match="body"):
                await egress.fetch(request, LIMITS)
        arrived = other.requests
        assert [(it.method, it.body, it.headers.get("x-key")) for it in arrived] == [
            ("GET", b"", None)
        ]


async def test_proxies_of_the_environment_are_ignored(
    web: FakeWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeWeb() as canary:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, canary.url())
        web.put("/", "direct")
        assert (await fetch(web, "/")).body == b"direct"
        assert canary.connections == 0


async def test_a_configured_proxy_gets_the_address_that_was_checked(web: FakeWeb) -> None:
    tunnels: list[tuple[str, str]] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        tunnels.append((head.split()[1], head.split("Proxy-Authorization: ")[1].split("\r\n")[0]))
        inner, outer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        outer.write(await reader.readuntil(b"\r\n\r\n"))
        writer.write(await inner.read())
        writer.close()
        outer.close()

    web.put("/", "through the tunnel")
    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    async with server:
        place = f"http://me:s%40fe@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        # 93.184.216.34 is public, and only the proxy would connect to it.
        async with way_out(proxy=place, resolve=answers("93.184.216.34")) as egress:
            answer = await egress.fetch(EgressRequest("http://site.example/"), LIMITS)
            assert answer.body == b"through the tunnel"
            with pytest.raises(EgressRefused):
                await egress.connect("127.0.0.1", web.port)
    assert tunnels == [("93.184.216.34:80", "Basic bWU6c0BmZQ==")]


async def test_a_client_of_somebody_elses_is_checked_at_every_hop(web: FakeWeb) -> None:
    async with FakeWeb() as canary, way_out(web.place) as egress:
        web.put("/ok", "fine")
        web.redirect("/away", canary.url("/"), 307)
        async with egress.client({}, 5.0, 1_000, 100) as client:
            client.follow_redirects = True
            assert (await client.post(web.url("/ok"))).text == "fine"
            with pytest.raises(EgressRefused):
                await client.post(web.url("/away"))
            assert (await client.get(web.url("/ok"))).status_code == 405
        assert canary.connections == 0


async def test_a_raw_connection_carries_bytes_both_ways(web: FakeWeb) -> None:
    web.put("/", "raw")
    async with way_out(web.place) as egress:
        reader, writer = await egress.connect("127.0.0.1", web.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"raw")
        writer.close()
        await writer.wait_closed()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for site.example, and its key."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=site.example", "-addext",
         "subjectAltName=DNS:site.example", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


async def test_tls_names_and_checks_the_host_that_was_asked_for(
    certificate: tuple[Path, Path],
) -> None:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*certificate)
    names: list[str | None] = []
    served.sni_callback = lambda _, name, __: names.append(name)
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    async with FakeWeb(tls=served) as web:
        web.put("/", "private")
        out = way_out(web.place, resolve=answers("127.0.0.1"), tls=trusting)
        async with out as egress:
            answer = await egress.fetch(EgressRequest(f"https://site.example:{web.port}/"), LIMITS)
            with pytest.raises(EgressError, match="certificate"):
                await egress.fetch(EgressRequest(f"https://other.example:{web.port}/"), LIMITS)
        assert (answer.body, names) == (b"private", ["site.example", "other.example"])


async def test_the_end_of_a_connection_is_awaited(web: FakeWeb) -> None:
    """Otherwise asyncio may log the error that broke it as never retrieved."""
    url = web.put("/", "fine")
    async with (
        way_out(web.place) as egress,
        egress.client({}, 5.0, 1_000, 100) as client,
        client.stream("POST", url) as response,
    ):
        stream = response.extensions["network_stream"]
        connection = stream.get_extra_info("socket")
        await stream.aclose()
        assert connection.fileno() == -1


async def test_a_dropped_fetch_leaves_no_connection_behind(web: FakeWeb) -> None:
    arrived, left = asyncio.Event(), asyncio.Event()

    async def handler(_: WebRequest, line: WebConnection) -> None:
        arrived.set()
        try:
            while True:
                await line.send(b"x" * 100_000)
        finally:
            left.set()

    url = web.handle("/", handler)
    async with way_out(web.place) as egress, asyncio.TaskGroup() as group:
        task = group.create_task(egress.fetch(EgressRequest(url), LIMITS))
        await arrived.wait()
        task.cancel()
        await asyncio.wait_for(left.wait(), 5)


@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("site.test", True),
        ("docs.site.test", True),
        ("notsite.test", False),
        ("site.test.evil.test", False),
        ("93.184.216.34", False),
    ],
)
async def test_only_domains_that_are_listed_are_looked_up_and_reached(
    host: str, reached: bool
) -> None:
    asked = []

    async def resolve(name: str) -> Sequence[IpAddress]:
        asked.append(name)
        raise OSError("no such name")

    egress = Egress(domains=["site.test"], resolve=resolve, tls=TRUSTING_NOBODY)
    with pytest.raises(EgressError if reached else EgressRefused):
        await egress.fetch(EgressRequest(f"https://{host}/"), LIMITS)
    with pytest.raises(EgressError if reached else EgressRefused):
        await egress.connect(host, 443)
    assert asked == ([host, host] if reached else [])
    await egress.close()


async def test_a_redirect_to_another_domain_is_not_followed(web: FakeWeb) -> None:
    url = web.redirect("/start", "https://other.test/")
    egress = Egress(allow_hosts=[web.place], domains=["site.test"], tls=TRUSTING_NOBODY)
    with pytest.raises(EgressRefused, match="not in an allowed domain"):
        await egress.fetch(EgressRequest(url), LIMITS)
    assert [asked.target for asked in web.requests] == ["/start"]
    await egress.close()
