"""Addresses of the public Internet, and texts that are valid hosts and URLs."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanobot.security.egress.connector import check_addresses, is_own_address, parse_exceptions
from nanobot.security.egress.urls import EgressRefused, is_public, parse_url

CLOSED_4 = (
    "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254 "
    "168.63.129.16 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 "
    "192.168.1.1 192.88.99.1 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 "
    "239.255.255.255 240.0.0.1 255.255.255.255"
)
CLOSED_6 = (
    ":: ::1 ::2 ::ffff:8.8.8.8 ::8.8.8.8 ::ffff:0:8.8.8.8 100::1 64:ff9b:1::1 64:ff9b:1::8.8.8.8 "
    "2001::1 2001:0:808:808::1 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 2002:808:808::1 "
    "3fff::1 3ffe::1 5f00::1 4000::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%1 fec0::1 ff02::1 "
    "2a00::5efe:a00:1 2a00::200:5efe:7f00:1"
)
OPEN = (
    "1.1.1.1 8.8.8.8 93.184.216.34 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.0.1.1 "
    "198.17.0.1 223.255.255.255 2606:4700:4700::1111 2a00:1450:4001:800::200e 2620:fe::fe "
    "64:ff9b::8.8.8.8"
)


@pytest.mark.parametrize("text", [*CLOSED_4.split(), *CLOSED_6.split()])
def test_what_is_not_public_unicast_is_closed(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", OPEN.split())
def test_public_addresses_are_open(text: str) -> None:
    assert is_public(ip_address(text))


def _disguises(inner: int) -> list[int]:
    """Return every way of IPv6 to write an IPv4 address."""
    return [
        inner,  # compatible
        0xFFFF << 32 | inner,  # mapped
        0xFFFF << 48 | inner,  # translated
        0x64FF9B << 96 | inner,  # NAT64
        0x64FF9B0001 << 80 | inner,  # NAT64 of one's own, some lengths
        0x64FF9B0001 << 80 | (inner >> 16) << 64 | (inner & 0xFFFF) << 40,
        0x2002 << 112 | inner << 80,  # 6to4
        0x20010000 << 96 | inner ^ 0xFFFFFFFF,  # Teredo: the client
        0x20010000 << 96 | inner << 64 | 0xFFFF,  # Teredo: the server
        0x2A00 << 112 | 0x5EFE << 32 | inner,  # ISATAP
        0x2A00 << 112 | 0x02005EFE << 32 | inner,
    ]


@given(
    st.sampled_from(CLOSED_4.split()).map(IPv4Address)
    | st.integers(0, 2**32 - 1).map(IPv4Address).filter(lambda address: not is_public(address))
)
@settings(max_examples=60, deadline=None)
def test_no_disguise_opens_a_closed_address(address: IPv4Address) -> None:
    assert not [str(it) for it in map(IPv6Address, _disguises(int(address))) if is_public(it)]


@given(st.integers(0, 2**128 - 1).map(IPv6Address) | st.integers(0, 2**32 - 1).map(IPv4Address))
@settings(max_examples=200, deadline=None)
def test_nothing_is_public_that_python_calls_private(address: IPv4Address | IPv6Address) -> None:
    nat64 = isinstance(address, IPv6Address) and int(address) >> 32 == 0x64FF9B << 64
    assert nat64 or address.is_global or not is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.1/", "http://2130706433/", "http://0x7f.0.0.1/", "http://0x7f000001/",
        "http://017700000001/", "http://0177.0.0.1/", "http://127.0.0.01/", "http://127.0.0.1./",
        "http://localhost./", "http://example.com../", "http://.example.com/",
        "http://exa mple.com/", "http://127。0。0。1/",
        "http://user@example.com/", "http://example.com@127.0.0.1/", "http://a:b@example.com/",
        "http://example.com%2f@127.0.0.1/", "http://127.0.0.1%2f/", "http://%31%32%37.0.0.1/",
        "http://１２７.０.０.１/", "http://ⓔxample.com/", "http://①②⑦.⓪.⓪.①/", "http://example。com/",
        "http://[::1%25eth0]/", "http://[fe80::1%eth0]/", "http://[::1/", "http://::1/",
        "http://[v1.x]/", "http://[127.0.0.1]/", "http://example.com:0/", "http://example.com:65536/",
        "http://example.com:/x", "http://example.com:８０/", "http://example.com:80:80/",
        "http:\\\\example.com/", "http://example.com\\@127.0.0.1/", "http:///etc/passwd", "http://",
        "http:example.com", "//example.com/", "example.com", "file:///etc/passwd", "gopher://a.b/",
        "ftp://example.com/", "data:text/html,x", "javascript:alert(1)", "http://a\nb.com/",
        "http://example.com/\r\nHost: evil",
        "http://example.com/\x00", "http://-a.com/", "http://a-.com/",
        f"http://{'a' * 64}.com/",
        f"http://example.com/{'a' * 5_000}", "http://1.2.3/", "http://a.0x1/",
        "http://exam\u200bple.com/", "",
    ],
)  # fmt: skip
def test_what_can_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(EgressRefused):
        parse_url(url)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("HTTP://Example.COM", "http://example.com/"),
        ("https://example.com:443/a?b=c#d", "https://example.com/a?b=c"),
        ("https://example.com?q", "https://example.com/?q"),
        ("http://example.com:8080/ä b".replace(" ", "%20"), "http://example.com:8080/%C3%A4%20b"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://аpple.com/", "https://xn--pple-43d.com/"),
        ("http://[2606:4700::0:1111]:81/", "http://[2606:4700::1111]:81/"),
        (" https://my_host.example/(x)\n", "https://my_host.example/(x)"),
    ],
)
def test_a_url_has_one_form(text: str, shown: str) -> None:
    assert str(parse_url(text)) == shown


def nobodys(_: object) -> bool:
    return False


def test_the_machines_own_address_is_refused_however_public_it_is() -> None:
    address, nothing = ip_address("93.184.216.34"), parse_exceptions([])
    assert check_addresses("me.example", 80, [address], nothing, nobodys) == (address,)
    with pytest.raises(EgressRefused):
        check_addresses("me.example", 80, [address], nothing, lambda it: it == address)
    assert is_own_address(ip_address("127.0.0.1"))
    assert not is_own_address(address)


def test_an_exception_of_the_owner_reaches_no_further_than_it_says() -> None:
    owners = parse_exceptions(
        ["printer.lan", "127.0.0.1:8080", "10.1.0.0/16", "[::1]:80", "fd00::1"]
    )
    private = [ip_address("192.168.0.9")]
    assert check_addresses("printer.lan", 80, private, owners, nobodys)
    assert check_addresses("127.0.0.1", 8080, [ip_address("127.0.0.1")], owners, nobodys)
    assert check_addresses("nas.lan", 25, [ip_address("10.1.2.3")], owners, nobodys)
    assert check_addresses("::1", 80, [ip_address("::1")], owners, nobodys)
    assert check_addresses("fd00::1", 443, [ip_address("fd00::1")], owners, nobodys)
    for host, port, address in (
        ("x.printer.lan", 80, "192.168.0.9"),
        ("127.0.0.1", 8081, "127.0.0.1"),
        ("::ffff:127.0.0.1", 8080, "::ffff:127.0.0.1"),
        ("nas.lan", 80, "10.2.0.1"),
        ("::1", 81, "::1"),
        ("mail.example.com", 25, "93.184.216.34"),
    ):
        with pytest.raises(EgressRefused, match=r".") as refused:
            check_addresses(host, port, [ip_address(address)], owners, nobodys)
        assert "allow_hosts" in refused.value.hint


@pytest.mark.parametrize(
    "entry", ["", "a b", "10.0.0.0/33", "host:0", "host:x", "http://a.b", "127.1"]
)
def test_an_exception_that_cannot_be_read_is_an_error(entry: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_exceptions([entry])
