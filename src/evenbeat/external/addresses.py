"""Address safety: which URLs and addresses may be fetched on behalf of a user.

A URL that a user gives must not become a way into the network that the worker stands in. So only
http and https are fetched, and only from public addresses, unless the operator allows others. What
counts is the address that a name resolves to, at the moment of connecting: whoever fetches resolves
once with `Policy.resolve` and connects to one of the addresses that came back, to no other.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from evenbeat.errors import InvalidInput

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Sequence[str]]
"""From a host and a port to the texts of its addresses; raises OSError when there are none."""

MAX_URL = 2048
MAX_ADDRESSES = 16


class AddressRefused(InvalidInput):
    """A URL leads where nothing may be fetched from; the message says where and why."""


class UrlRefused(AddressRefused):
    """A URL that is not fetched wherever it leads: its form is wrong."""


class Kind(StrEnum):
    """What an address that is not public is for."""

    LOOPBACK = "loopback"
    PRIVATE = "private"
    LINK_LOCAL = "link-local"
    METADATA = "cloud metadata"
    MULTICAST = "multicast"
    UNSPECIFIED = "unspecified"
    RESERVED = "reserved"


_SPECIAL: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    # The first that matches counts. Metadata services give out a machine's credentials.
    (Kind.METADATA, ("169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32",
                     "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
                     "fd00:ec2::/32", "fd20:ce::254/128")),
    (Kind.UNSPECIFIED, ("0.0.0.0/8", "::/128")),
    (Kind.LOOPBACK, ("127.0.0.0/8", "::1/128")),
    (Kind.LINK_LOCAL, ("169.254.0.0/16", "fe80::/10")),
    (Kind.PRIVATE, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10",
                    "fc00::/7", "fec0::/10", "64:ff9b:1::/48")),
    (Kind.MULTICAST, ("224.0.0.0/4", "ff00::/8")),
    (Kind.RESERVED, ("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
                     "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "::/96", "100::/64",
                     "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16")),
)  # fmt: skip
_TABLE = [(kind, ipaddress.ip_network(text)) for kind, texts in _SPECIAL for text in texts]
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_INTERFACE_OF_IPV4 = {0x00005EFE, 0x02005EFE}  # ISATAP

_ON_REQUEST = frozenset({Kind.LOOPBACK, Kind.PRIVATE})
"""What `allow_private_addresses` allows; the rest must be named in `allowed_networks`."""


def kind_of(address: Address) -> Kind | None:
    """What the address is for, or None when it is public."""
    inner = _embedded(address)
    if inner is not None:
        return kind_of(inner)
    for kind, network in _TABLE:
        if address.version == network.version and address in network:
            return kind
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return Kind.RESERVED
    return None


def _embedded(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that a packet to this one really goes to, where one is written in it."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    number = int(address)
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64 or (number >> 32) & 0xFFFFFFFF in _INTERFACE_OF_IPV4:
        return ipaddress.IPv4Address(number & 0xFFFFFFFF)
    return None


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be fetched: the public internet, and what the operator allows beside it."""

    allow_private: bool = False
    allowed: tuple[Network, ...] = ()

    @classmethod
    def of(cls, allow_private: bool, networks: Iterable[str]) -> "Policy":
        """The policy that the settings say."""
        return cls(
            allow_private, tuple(ipaddress.ip_network(text, strict=False) for text in networks)
        )

    def allows(self, address: Address) -> bool:
        """Whether something may be fetched from this address."""
        kind = kind_of(address)
        return (
            kind is None
            or (self.allow_private and kind in _ON_REQUEST)
            or any(self._lists(a) for a in (address, _embedded(address)) if a is not None)
        )

    def check(self, host: str, addresses: Iterable[str]) -> list[str]:
        """The addresses of a host, each once; `AddressRefused` when even one is not allowed.

        One bad address spoils all: whoever mixes public and private ones under one name is out to
        be let in by chance.
        """
        found = list(dict.fromkeys(_parsed(host, text) for text in addresses))[:MAX_ADDRESSES]
        for address in found:
            if not self.allows(address):
                raise AddressRefused(_refusal(host, address), field="url")
        return [str(address) for address in found]

    def resolve(self, host: str, port: int, resolver: Resolver | None = None) -> list[str]:
        """The addresses to connect to, checked. Connect to these, never to the name again."""
        found = self.check(host, (resolver or system_resolver)(host, port))
        if not found:
            raise OSError(f"{host} has no address")
        return found

    def _lists(self, address: Address) -> bool:
        return any(address.version == n.version and address in n for n in self.allowed)


def system_resolver(host: str, port: int) -> list[str]:
    """The addresses that this machine finds; numbers in any notation (0x7f.1) are read as it does
    when it connects."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def resolution_problem(host: str, error: OSError) -> str:
    """Why a name could not be resolved, in a sentence."""
    reason = error.strerror or str(error)
    return f"{host} cannot be resolved: {reason[:1].lower()}{reason[1:]}."


def _parsed(host: str, text: str) -> Address:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        raise AddressRefused(
            f"{host} resolves to {text!r}, which is no address.", field="url"
        ) from None


def _refusal(host: str, address: Address) -> str:
    kind = kind_of(address)
    where = f"{host} is" if host == str(address) else f"{host} leads to {address},"
    article = "an" if kind is Kind.UNSPECIFIED else "a"
    inner = _embedded(address)
    through = f" ({inner} inside)" if inner is not None else ""
    setting = (
        "EVENBEAT_ALLOW_PRIVATE_ADDRESSES=true, or the network in EVENBEAT_ALLOWED_NETWORKS,"
        if kind in _ON_REQUEST
        else "the network in EVENBEAT_ALLOWED_NETWORKS"
    )
    return (
        f"{where} {article} {kind} address{through}, and only public addresses are fetched from. "
        f"An operator can allow it: {setting} in the settings of the workers."
    )


# -- the form of a URL ---------------------------------------------------------------------------

_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f\\]")


def check_url(url: str) -> str:
    """The URL, when its form is one that is fetched: http or https, a host, nobody's password.

    Where it leads is seen only on connecting; this is for telling a user early.
    """
    if len(url) > MAX_URL:
        raise _wrong(f"The URL has {len(url):,} characters; at most {MAX_URL:,} are allowed.")
    if _UNPRINTABLE.search(url):
        raise _wrong("The URL has a space, a backslash or a control character in it; write it as "
                     "%20, %5C and so on.")  # fmt: skip
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _wrong(f"The URL cannot be understood: {error}.") from None
    if parts.scheme not in {"http", "https"}:
        raise _wrong(f"{_scheme(parts.scheme)} Only http and https URLs are fetched, such as "
                     "https://example.com/path.")  # fmt: skip
    if "@" in parts.netloc:
        raise _wrong("The URL has a user name or password in it (before the @). Leave it out; an "
                     "Authorization header says who is asking.")  # fmt: skip
    if not host or port == 0:
        raise _wrong("The URL names no host to connect to, such as https://example.com/path.")
    return url


def _scheme(scheme: str) -> str:
    return f"This is a {scheme[:20]} URL." if scheme else "This is not a full URL."


def _wrong(message: str) -> UrlRefused:
    return UrlRefused(message, field="url")
