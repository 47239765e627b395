"""Address safety: which URLs and addresses may be fetched on behalf of a user.

A URL from a user must not become a way into the worker's own network. So only http and https are
fetched, and only from public addresses, unless the operator allows others. What counts is the
address that a name resolves to, at the moment of connecting: resolve once with `Policy.resolve` and
connect to one of the addresses that came back, to no other.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from evenbeat.errors import InvalidInput

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_URL = 2048


class AddressRefused(InvalidInput):
    """A URL that is not fetched: for where it leads, or for its form. The message says why."""

    code = "address_refused"

    def __init__(self, message: str) -> None:
        super().__init__(message, field="url")


# What addresses that are not public are for. The first that matches counts. Metadata services give
# out a machine's credentials.
_SPECIAL = {
    "cloud metadata": ("169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32",
                       "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
                       "fd00:ec2::/32", "fd20:ce::254/128"),
    "unspecified": ("0.0.0.0/8", "::/128"),
    "loopback": ("127.0.0.0/8", "::1/128"),
    "link-local": ("169.254.0.0/16", "fe80::/10"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10",
                "fc00::/7", "fec0::/10", "64:ff9b:1::/48"),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "reserved": ("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
                 "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "::/96", "100::/64",
                 "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16"),
}  # fmt: skip
_TABLE = [(kind, ipaddress.ip_network(text)) for kind, texts in _SPECIAL.items() for text in texts]
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_INTERFACE_OF_IPV4 = {0x00005EFE, 0x02005EFE}  # ISATAP

_ON_REQUEST = frozenset({"loopback", "private"})
"""What `allow_private_addresses` allows; the rest must be named in `allowed_networks`."""


def kind_of(address: Address) -> str | None:
    """What the address is for, or None when it is public."""
    for kind, network in _TABLE:
        if address.version == network.version and address in network:
            return kind
    inner = _embedded(address)
    if inner is not None:
        return kind_of(inner)
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return "reserved"
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
        """The policy of the settings."""
        return cls(allow_private, tuple(map(ipaddress.ip_network, networks)))

    def allows(self, address: Address) -> bool:
        """Whether something may be fetched from this address."""
        kind = kind_of(address)
        if kind is None or (self.allow_private and kind in _ON_REQUEST):
            return True
        targets = [target for target in (address, _embedded(address)) if target is not None]
        return any(a.version == n.version and a in n for a in targets for n in self.allowed)

    def check(self, host: str, addresses: Iterable[str]) -> list[str]:
        """The addresses of a host, each once; `AddressRefused` when even one is not allowed.

        One bad address spoils all: a name that mixes public and private ones is trying to get in by
        chance.
        """
        checked = dict.fromkeys(ipaddress.ip_address(text.partition("%")[0]) for text in addresses)
        for address in checked:
            if not self.allows(address):
                leads = "" if host == str(address) else f" leads to {address}, which"
                raise AddressRefused(
                    f"{host}{leads} is {kind_of(address)}, and only public addresses are fetched "
                    "from. An operator can allow the network in EVENBEAT_ALLOWED_NETWORKS, or all "
                    "private and loopback ones by EVENBEAT_ALLOW_PRIVATE_ADDRESSES=true, in the "
                    "settings of the workers."
                )
        return [str(address) for address in checked]

    def resolve(self, host: str, port: int) -> list[str]:
        """The addresses to connect to, checked. Connect to these, never to the name again."""
        return self.check(host, system_resolver(host, port))


def system_resolver(host: str, port: int) -> list[str]:
    """The addresses that this machine finds; numbers in any notation (0x7f.1) are read as it reads
    them when it connects."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in entries]


# -- the form of a URL ---------------------------------------------------------------------------

_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f\\]")


def http_url(url: str) -> SplitResult | None:
    """The parts of an http or https URL with a host; None for anything else."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is no port
    except ValueError:
        return None
    usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
    return parts if usable and url.isprintable() and " " not in url else None


def check_url(url: str) -> str:
    """The URL, when its form is one that is fetched: http or https, a host, nobody's password.

    Where it leads is seen only on connecting; this is for telling a user early.
    """
    if len(url) > MAX_URL:
        raise AddressRefused(
            f"The URL has {len(url):,} characters; at most {MAX_URL:,} are allowed."
        )
    if _UNPRINTABLE.search(url):
        raise AddressRefused(
            "The URL has a space, a backslash or a control character in it; write it as %20, %5C "
            "and so on."
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise AddressRefused(f"The URL cannot be understood: {error}.") from None
    if parts.scheme not in {"http", "https"}:
        what = f"This is a {parts.scheme[:20]} URL." if parts.scheme else "This is not a full URL."
        raise AddressRefused(
            f"{what} Only http and https URLs are fetched, such as https://example.com/path."
        )
    if "@" in parts.netloc:
        raise AddressRefused(
            "The URL has a user name or password in it (before the @). Leave it out; an "
            "Authorization header says who is asking."
        )
    if not host or port == 0:
        raise AddressRefused(
            "The URL names no host to connect to, such as https://example.com/path."
        )
    return url
