"""Text whose words can be told apart by a database of any locale.

PostgreSQL asks its locale what a letter is, and where the locale is C it takes every character
beyond ASCII for one: moon in typographic quotes would be another word than moon. So texts that
are searched, and what they are searched for, have their punctuation in ASCII or apart.
"""

import unicodedata

_MEANT = {
    '"': "\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033",
    "'": "\u2018\u2019\u201a\u201b\u2039\u203a\u2032",
    "-": "\u2010\u2011\u2212",
    " - ": "\u2012\u2013\u2014\u2015",
    "...": "\u2026",
    " * ": "\u2022",
    "/": "\u2044",
}
"""Quotes, dashes and their kin, by what people type for them."""
_ASCII = {mark: meant for meant, marks in _MEANT.items() for mark in marks}


class _Table(dict[int, str | None]):
    """What becomes of each character, worked out when it is first met."""

    def __missing__(self, code: int) -> str | None:
        self[code] = _plain(chr(code))
        return self[code]


def _plain(character: str) -> str | None:
    if character.isascii():
        return character
    if character in _ASCII:
        return _ASCII[character]
    category = unicodedata.category(character)
    if category == "Cf":  # soft hyphens, joiners, marks of direction: nobody sees them
        return None
    if category[0] == "Z":
        return " "
    return f" {character} " if category[0] in "PS" else character


_TABLE = _Table()


def plain_words(text: str) -> str:
    """The text with its punctuation in ASCII, or apart from the words."""
    return text if text.isascii() else text.translate(_TABLE)
