"""Scopes and what they refuse."""

import pytest

from evenbeat.domain.scope import GLOBAL, Scope
from evenbeat.errors import InvalidInput


def test_the_default_is_global() -> None:
    assert Scope() == GLOBAL
    assert str(GLOBAL) == "global/global"


def test_text_form() -> None:
    assert str(Scope("tenant", "acme")) == "tenant/acme"
    assert str(Scope("path", "a/b")) == "path/a/b"


def test_equal_scopes_hash_alike() -> None:
    assert {Scope("a", "b"): 1}[Scope("a", "b")] == 1


@pytest.mark.parametrize("bad", ["", "  ", "a\nb", "a\x00b", None, 7])
@pytest.mark.parametrize("field", ["kind", "id"])
def test_refuses_and_shows_the_way(bad: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Scope(**{field: bad})
    assert repr(bad) in str(caught.value)
    assert 'Scope("tenant", "acme")' in str(caught.value)
    assert f"scope {field} " in str(caught.value)
    assert caught.value.field == "scope"


def test_a_kind_has_no_slash() -> None:
    with pytest.raises(InvalidInput, match="without '/'"):
        Scope("a/b", "c")


def test_length_limit() -> None:
    assert Scope("k" * 200, "i" * 200)
    with pytest.raises(InvalidInput, match="1 to 200 printable characters"):
        Scope("tenant", "i" * 201)
