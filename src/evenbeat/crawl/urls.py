"""Which URLs mean one page, which belong to one site, and which are variations of one pattern."""

import hashlib
import re
from collections.abc import Sequence
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}
_TRACKING = re.compile(
    r"utm_\w+|gclid|gclsrc|dclid|fbclid|msclkid|yclid|mc_cid|mc_eid|igshid|_ga|_gl|phpsessid|"
    r"jsessionid|aspsessionid\w*",
    re.IGNORECASE,
)
"""Parameters that say who is asking or where from, never what is asked for."""
_SESSION_IN_PATH = re.compile(r";jsessionid=[^/?]*", re.IGNORECASE)
_INDEX = re.compile(r"/(index|default)\.(html?|php|aspx?)$", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_SERIAL = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}|[0-9a-f]{16,}", re.IGNORECASE)
_SAFE = "%/:=&?~#+!$,;'@()*[]"
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})?")
_NEEDS_NO_ESCAPE = re.compile(r"[A-Za-z0-9~_-]")
_LONGEST_PATTERN = 200
_LONGEST_KEY = 500
"""The database has an index over a page's source and key, whose entries must not be longer than
a third of a page of its own."""


def canonical_url(url: str) -> str:
    """One spelling for the URLs that surely mean the same: without fragment, tracking parameters
    and default port, the query in order, escapes only where needed. Raises ValueError for what is
    no URL."""
    parts = urlsplit(url.strip())
    host = _host(parts)
    if parts.scheme not in _DEFAULT_PORTS or not host:
        raise ValueError(f"{url[:200]!r} is not an http or https URL")
    port = "" if parts.port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{parts.port}"
    path = _escaped(_SESSION_IN_PATH.sub("", parts.path) or "/")
    pairs = [pair for pair in parts.query.split("&") if pair]
    named = [_escaped(p) for p in pairs if not _TRACKING.fullmatch(p.partition("=")[0])]
    shown = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, f"{shown}{port}", path, "&".join(sorted(named)), ""))


def page_key(url: str) -> str:
    """What a page is known by: the canonical URL without what usually makes no difference, namely
    http or https, www., a slash at the end and index.html. The end of a long one is a hash."""
    parts = urlsplit(canonical_url(url))
    path = _INDEX.sub("/", parts.path).rstrip("/") or "/"
    key = f"{site_of(url)}{path}" + (f"?{parts.query}" if parts.query else "")
    if len(key) <= _LONGEST_KEY:
        return key
    return f"{key[: _LONGEST_KEY - 65]}~{hashlib.sha256(key.encode()).hexdigest()}"


def site_of(url: str) -> str:
    """The host that a URL belongs to: without www., with a port of its own only."""
    parts = urlsplit(url)
    host = _host(parts).removeprefix("www.")
    own = parts.port is not None and parts.port not in _DEFAULT_PORTS.values()
    return f"{host}:{parts.port}" if own else host


def same_site(url: str, start: str) -> bool:
    """Whether a crawl that began at `start` may ask for this URL."""
    try:
        return urlsplit(url).scheme in _DEFAULT_PORTS and site_of(url) == site_of(start)
    except ValueError:
        return False


def pattern_of(url: str) -> str:
    """What a URL has in common with its variations: numbers and serials in the path stand for any
    other, and of the query only the names count. An endless calendar has one pattern."""
    parts = urlsplit(url)
    path = _NUMBER.sub("0", _SERIAL.sub("*", parts.path)) or "/"
    names = sorted({pair.partition("=")[0] for pair in parts.query.split("&") if pair})
    return (path + ("?" + "&".join(names) if names else ""))[:_LONGEST_PATTERN]


def under(url: str, paths: Sequence[str]) -> bool:
    """Whether the URL's path is one of these or below one of them; any is, when there are none."""
    path = urlsplit(url).path or "/"
    return not paths or any(path == p or path.startswith(p.rstrip("/") + "/") for p in paths)


def _host(parts: SplitResult) -> str:
    """The host as it is asked for in the network, where there are letters of ASCII only."""
    host = (parts.hostname or "").rstrip(".")
    return host if host.isascii() else host.encode("idna").decode("ascii")


def _escaped(text: str) -> str:
    """The text as it may stand in a URL. A dot that is escaped stays so: two of them mean a folder
    up only where they are not."""
    return _ESCAPE.sub(_as_usual, quote(text, safe=_SAFE))


def _as_usual(escape: re.Match[str]) -> str:
    character = chr(int(escape[1] or "25", 16))
    return character if _NEEDS_NO_ESCAPE.fullmatch(character) else f"%{ord(character):02X}"
