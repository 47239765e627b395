"""What the child process is told, as one JSON document on its standard input, and what it answers:
one JSON document a line."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from evenbeat.crawl.urls import canonical_url, page_key
from evenbeat.external.addresses import Policy

MOST_TEXT = 100_000
"""How many characters of a page's text are kept and searched."""
MOST_TITLE = 500
MOST_BYTES = 5 * 2**20
"""How large a page may be, packed and unpacked."""
LONGEST_LINE = 2 * 2**20

Tell = Callable[[dict[str, Any]], None]
"""How the child speaks."""


@dataclass(frozen=True, slots=True)
class Order:
    """A crawl to do."""

    url: str
    max_pages: int
    max_depth: int
    max_seconds: float
    max_per_pattern: int
    delay: float
    page_timeout: float
    allowed_paths: tuple[str, ...]
    user_agent: str
    allow_private: bool
    networks: tuple[str, ...]

    @property
    def policy(self) -> Policy:
        """Where the child may connect to."""
        return Policy.of(self.allow_private, self.networks)

    def encoded(self) -> str:
        """As the child reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def decoded(cls, text: str) -> "Order":
        """As the worker wrote it."""
        given = json.loads(text)
        lists = {name: tuple(given[name]) for name in ("allowed_paths", "networks")}
        return cls(**given | lists)


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it is kept."""

    url: str
    key: str
    title: str
    text: str
    depth: int

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> "Page":
        """The page of a message, checked and cut to size once more: the child reads what strangers
        wrote. Raises ValueError when its URL is none."""
        url = canonical_url(str(message["url"])[:2048])
        return cls(
            url=url,
            key=page_key(url),
            title=str(message["title"])[:MOST_TITLE],
            text=str(message["text"])[:MOST_TEXT],
            depth=int(message["depth"]),
        )
