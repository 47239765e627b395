"""One form for what can be written in many: which URLs mean one page, belong to one site or are
variations of one pattern, and texts that can be stored and searched."""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any
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

    def usual(escape: re.Match[str]) -> str:
        character = chr(int(escape[1] or "25", 16))
        return character if _NEEDS_NO_ESCAPE.fullmatch(character) else f"%{ord(character):02X}"

    return _ESCAPE.sub(usual, quote(text, safe=_SAFE))


# -- texts ---------------------------------------------------------------------------------------

# PostgreSQL asks its locale what a letter is, and where the locale is C it takes every character
# beyond ASCII for one: moon in typographic quotes would be a different word. So texts to search,
# and what they are searched for, get their punctuation in ASCII or set apart from words.

_TYPED = {
    '"': "\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033",
    "'": "\u2018\u2019\u201a\u201b\u2039\u203a\u2032",
    "-": "\u2010\u2011\u2212",
    " - ": "\u2012\u2013\u2014\u2015",
    "...": "\u2026",
    " * ": "\u2022",
    "/": "\u2044",
}
"""Typographic quotes, dashes and so on, by what people type for them."""
_ASCII = {mark: typed for typed, marks in _TYPED.items() for mark in marks}
_HIDDEN = {"script", "style", "noscript", "template", "svg", "iframe", "object", "head"}
_INLINE = {
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins",
    "kbd", "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "u", "var",
    "wbr",
}  # fmt: skip
_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\s*\n\s*")
_UNSTORABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ue000\ue001]")
"""What PostgreSQL cannot hold, what is invisible or controls a terminal, and the two marks that
snippets are made with."""


class _Translation(dict[int, str | None]):
    """What becomes of each character, worked out when it is first met."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        category = unicodedata.category(character)
        plain: str | None = _ASCII.get(character, character)
        if character.isascii() or character in _ASCII:
            pass
        elif category == "Cf":  # soft hyphens, joiners, marks of direction: nobody sees them
            plain = None
        elif category[0] == "Z":
            plain = " "
        elif category[0] in "PS":
            plain = f" {character} "
        self[code] = plain
        return plain


_TRANSLATION = _Translation()


def plain_words(text: str) -> str:
    """The text with its punctuation in ASCII, or apart from the words."""
    return text if text.isascii() else text.translate(_TRANSLATION)


def tidy(text: str) -> str:
    """The text with single spaces and single line breaks, words that can be told apart, and nothing
    that cannot be stored."""
    plain = plain_words(_UNSTORABLE.sub(" ", text))
    return _LINES.sub("\n", _SPACES.sub(" ", plain)).strip()


def visible_text(root: Any) -> Iterator[str]:
    """What a reader of this tree of markup would see, in order, with a break where one block ends
    and another begins. Walked with a stack of its own: markup may be nested deeper than calls."""
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            yield node
            continue
        visible = isinstance(node.tag, str) and node.tag not in _HIDDEN
        edge = "" if not visible or node.tag in _INLINE else "\n"
        stack.append(edge + (node.tail or ""))
        if visible:
            stack.extend(reversed(node))
            yield edge + (node.text or "")
