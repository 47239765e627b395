"""What a page's form sends, read the same with and without script."""

from typing import Annotated
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from fastapi import Depends, HTTPException, Request

from evenbeat.domain.ids import parse_id
from evenbeat.errors import InvalidInput, NotFound

_MAX_FIELDS = 5_000


class Form:
    """Names and values in the order of the page. A missing field reads as empty."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs

    def text(self, name: str) -> str:
        """The last value of a name, without spaces around."""
        return next((value.strip() for key, value in reversed(self.pairs) if key == name), "")

    def many(self, name: str) -> list[str]:
        """Every value of a name that is not empty."""
        return [value.strip() for key, value in self.pairs if key == name and value.strip()]

    def flag(self, name: str) -> bool:
        """Whether a box is ticked."""
        return self.text(name) not in ("", "0", "false", "off")

    def ids(self, name: str = "id") -> list[UUID]:
        """Every value of a name as an id."""
        return [id_of(value) for value in self.many(name)]

    def without(self, *names: str) -> str:
        """The rest as a query string."""
        return urlencode([(k, v) for k, v in self.pairs if k not in names and v.strip()])


def id_of(text: str, kind: str = "job") -> UUID:
    """An id in an address; anything else is the id of nothing."""
    id_ = parse_id(text)
    if id_ is None:
        raise NotFound(kind, text[:60])
    return id_


async def _form(request: Request) -> Form:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Send this form as application/x-www-form-urlencoded.")
    return parse(await request.body())


def parse(body: bytes) -> Form:
    """The fields of a body or a query string."""
    try:
        text = body.decode("utf-8")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise InvalidInput(
            f"The form cannot be read: it is not UTF-8, or has more than {_MAX_FIELDS} fields."
        ) from None
    return Form([(name, value.replace("\r\n", "\n")) for name, value in pairs])


def _query(request: Request) -> Form:
    query: bytes = request.scope["query_string"]
    return parse(query)


FormDep = Annotated[Form, Depends(_form)]
"""The form that was posted."""

QueryDep = Annotated[Form, Depends(_query)]
"""The query of the address, read like a form."""
