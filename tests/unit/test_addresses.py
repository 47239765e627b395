"""Address safety: which URLs are fetched, and from where."""

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.external import addresses
from evenbeat.external.addresses import (
    AddressRefused,
    Policy,
    check_url,
    kind_of,
    system_resolver,
)

PUBLIC = ["8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "192.167.1.1", "100.63.0.1",
          "100.128.0.1", "169.253.0.1", "198.17.0.1", "223.255.255.255", "2606:4700::1111",
          "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"]  # fmt: skip

NOT_PUBLIC = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1",
                    "64:ff9b::7f00:1", "2002:7f00:1::", "2606:4700::5efe:127.0.0.1",
                    "2606:4700::200:5efe:127.0.0.1"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
                   "100.127.255.255", "fc00::1", "fd12:3456::1", "fec0::1", "64:ff9b:1::808:808",
                   "::ffff:10.0.0.1", "2002:a00:1::1", "64:ff9b::192.168.0.1",
                   "fd00::5efe:808:808"],
    "link-local": ["169.254.1.1", "fe80::1", "febf::1", "::ffff:169.254.1.1"],
    "cloud metadata": ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe",
                    "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "169.254.170.2",
                    "192.0.0.192"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1"],
    "unspecified": ["0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0"],  # noqa: S104
    "reserved": ["240.0.0.1", "255.255.255.255", "192.0.2.1", "198.51.100.1", "203.0.113.1",
                    "198.18.0.1", "192.88.99.1", "2001:db8::1", "2001::1", "100::1", "::7f00:1",
                    "::808:808", "3fff::1", "4000::1", "5f00::1", "1::1", "f000::1",
                    "2001:db8::5efe:808:808"],
}  # fmt: skip


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_are_allowed(text: str):
    assert kind_of(ipaddress.ip_address(text)) is None
    assert Policy().check("example.com", [text])


@pytest.mark.parametrize(
    ("kind", "text"), [(k, t) for k, texts in NOT_PUBLIC.items() for t in texts]
)
def test_all_others_are_refused_by_what_they_are_for(kind: str, text: str):
    assert kind_of(ipaddress.ip_address(text)) == kind
    with pytest.raises(AddressRefused, match=f"is {kind}, .*EVENBEAT_ALLOWED_NETWORKS"):
        Policy().check("example.com", [text])


@given(st.ip_addresses())
def test_nothing_that_python_calls_special_is_public(address):
    """A second opinion: whatever the standard library refuses, we refuse."""
    inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    judged = inner or address
    special = judged.is_loopback or judged.is_link_local or judged.is_multicast or (
        judged.is_private or judged.is_unspecified or judged.is_reserved
    )  # fmt: skip
    if special and judged not in ipaddress.ip_network("64:ff9b::/96"):
        assert kind_of(address) is not None


@pytest.mark.parametrize("kind", NOT_PUBLIC)
def test_allowing_private_addresses_opens_two_kinds_only(kind: str):
    open_ = Policy(allow_private=True)
    opened = [open_.allows(ipaddress.ip_address(text)) for text in NOT_PUBLIC[kind]]
    assert set(opened) == {kind in {"loopback", "private"}}


def test_a_listed_network_is_allowed_in_either_notation():
    policy = Policy.of(False, ["169.254.169.254", "10.1.0.0/16", "fd00:1::/32"])
    for text in ("169.254.169.254", "::ffff:169.254.169.254", "10.1.2.3", "fd00:1::5"):
        assert policy.allows(ipaddress.ip_address(text))
    for text in ("169.254.169.253", "10.2.0.1", "fd00:2::1", "127.0.0.1"):
        assert not policy.allows(ipaddress.ip_address(text))


def test_one_private_address_among_public_ones_spoils_all():
    with pytest.raises(
        AddressRefused, match=r"mixed\.example leads to 10\.0\.0\.5, which is private"
    ):
        Policy().check("mixed.example", ["93.184.216.34", "10.0.0.5"])


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "127.1", "017700000001", "0"]
)
def test_numbers_in_any_notation_are_read_as_the_machine_connects(host: str):
    with pytest.raises(AddressRefused):
        Policy().resolve(host, 80)


def test_a_scoped_address_is_judged_without_its_scope():
    with pytest.raises(AddressRefused, match="link-local"):
        Policy().check("x", ["fe80::1%eth0"])


def test_the_addresses_to_connect_to_come_back_once_each(monkeypatch: pytest.MonkeyPatch):
    answers = ["93.184.216.34", "93.184.216.34", "2606:4700::1111"]
    monkeypatch.setattr(addresses, "system_resolver", lambda *_: answers)
    assert Policy().resolve("a.example", 443) == answers[1:]


def test_the_systems_own_resolver_is_asked():
    assert set(system_resolver("127.0.0.1", 80)) == {"127.0.0.1"}
    assert socket.getaddrinfo("localhost", 80)
    with pytest.raises(AddressRefused, match=r"localhost leads to .* is loopback"):
        Policy().resolve("localhost", 80)


@pytest.mark.parametrize(
    "url", ["http://example.com", "https://example.com:8443/a?b=c#d", "http://[2606:4700::1]/x",
            "https://bücher.example/ä", "HTTP://EXAMPLE.COM/"]
)  # fmt: skip
def test_sound_urls(url: str):
    assert check_url(url) == url


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://example.com/", "ftp URL. Only http and https"),
        ("file:///etc/passwd", "file URL"),
        ("gopher://127.0.0.1:6379/_x", "gopher URL"),
        ("javascript:alert(1)", "javascript URL"),
        ("example.com/path", "not a full URL"),
        ("//example.com/", "not a full URL"),
        ("", "not a full URL"),
        ("http://", "names no host"),
        ("http:///path", "names no host"),
        ("http://:80/", "names no host"),
        ("http://user:secret@example.com/", "user name or password"),
        ("http://example.com@127.0.0.1/", "user name or password"),
        ("http://example.com%40@127.0.0.1/", "user name or password"),
        ("http://@127.0.0.1/", "user name or password"),
        ("http://127.0.0.1\\@example.com/", "backslash"),
        ("http://exam ple.com/", "a space"),
        ("http://example.com/\r\nHost: x", "control character"),
        ("http://example.com:0/", "names no host"),
        ("http://example.com:99999/", "cannot be understood"),
        ("http://example.com:port/", "cannot be understood"),
        ("http://[::1/", "cannot be understood"),
        ("http://example.com/" + "a" * 2048, "at most 2,048"),
    ],
)
def test_urls_that_are_never_fetched(url: str, says: str):
    with pytest.raises(AddressRefused) as caught:
        check_url(url)
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)
