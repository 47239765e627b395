"""From a page's markup to its title, its text and what it says about robots."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from scrapy.http import HtmlResponse, Response, TextResponse

from evenbeat.crawl.order import MOST_TEXT, MOST_TITLE
from evenbeat.crawl.search_text import plain_words

_UNSEEN = {"script", "style", "noscript", "template", "svg", "iframe", "object", "head"}
_IN_LINE = {
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins",
    "kbd", "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "u", "var",
    "wbr",
}  # fmt: skip
_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\s*\n\s*")
_UNSTORABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ue000\ue001]")
"""What PostgreSQL cannot hold, what nobody sees or would drive a terminal, and the two marks that
snippets are made with."""


class Content(NamedTuple):
    """What is read from a page."""

    title: str
    text: str
    may_index: bool
    may_follow: bool


def legible(response: Response) -> Response:
    """The response, its text in UTF-8 when it claims a charset that is none, such as base64."""
    if isinstance(response, TextResponse):
        try:
            response.text.encode()
        except (LookupError, ValueError):
            return response.replace(encoding="utf-8")
    return response


def content_of(response: Response) -> Content | None:
    """The content of a page; None when it is no text."""
    if isinstance(response, HtmlResponse):
        return _of_html(response)
    if isinstance(response, TextResponse):
        text = tidy(response.text[: 2 * MOST_TEXT])
        rules = _rules(_header(response))
        return Content(text.partition("\n")[0][:MOST_TITLE], text[:MOST_TEXT], *rules)
    return None


def _of_html(response: HtmlResponse) -> Content:
    root: Any = response.selector.root
    if not hasattr(root, "iter"):  # an empty page has no tree
        return Content("", "", may_index=True, may_follow=True)
    titles = root.xpath("//title[not(ancestor::svg)]")
    title = tidy(titles[0].text_content()) if titles else ""
    said = ",".join(
        meta.get("content") or ""
        for meta in root.xpath("//meta[@name]")
        if (meta.get("name") or "").lower() in {"robots", "evenbeat"}
    )
    text = tidy("".join(_texts(root)))[:MOST_TEXT]
    return Content(
        (title or text.partition("\n")[0]).replace("\n", " ")[:MOST_TITLE],
        text,
        *_rules(f"{said},{_header(response)}"),
    )


def _texts(root: Any) -> Iterator[str]:
    """What a reader would see, in order, with a break where one block ends and another begins.
    Walked with a stack of its own: markup may be nested deeper than calls may."""
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            yield node
            continue
        tail, seen = node.tail or "", isinstance(node.tag, str) and node.tag not in _UNSEEN
        edge = "" if not seen or node.tag in _IN_LINE else "\n"
        waiting.append(edge + tail)
        if seen:
            waiting.extend(reversed(node))
            yield edge + (node.text or "")


def tidy(text: str) -> str:
    """The text with single spaces and single line breaks, words that can be told apart, and nothing
    that cannot be stored."""
    plain = plain_words(_UNSTORABLE.sub(" ", text))
    return _LINES.sub("\n", _SPACES.sub(" ", plain)).strip()


def _header(response: Response) -> str:
    values = response.headers.getlist("X-Robots-Tag")
    return ",".join(value.decode("latin-1") for value in values)


def _rules(said: str) -> tuple[bool, bool]:
    """Whether to index the page, and whether to follow its links."""
    words = {word.strip().lower() for word in said.split(",")}
    nothing = "none" in words
    return not (nothing or "noindex" in words), not (nothing or "nofollow" in words)
