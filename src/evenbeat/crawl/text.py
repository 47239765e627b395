"""Texts that can be stored and searched, and how they are taken from markup.

PostgreSQL asks its locale what a letter is, and where the locale is C it takes every character
beyond ASCII for one: moon in typographic quotes would be a different word. So texts to search, and
what they are searched for, get their punctuation in ASCII or set apart from words.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

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
