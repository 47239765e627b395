"""Scopes: one schedule fanned out per tenant, shard or whatever else a `kind` names."""

from dataclasses import dataclass

from evenbeat.errors import InvalidInput
from evenbeat.humanize import shorten

LONGEST_PART = 200


@dataclass(frozen=True, slots=True)
class Scope:
    """What one copy of a job stands for; a job's name is unique within its scope."""

    kind: str = "global"
    id: str = "global"

    def __post_init__(self) -> None:
        parts: dict[str, object] = {"kind": self.kind, "id": self.id}
        for field, value in parts.items():
            text = value if isinstance(value, str) and value.isprintable() else ""
            # The first slash of the text form ends the kind; the id may hold more of them.
            if not text.strip() or len(text) > LONGEST_PART or (field == "kind" and "/" in text):
                raise InvalidInput(
                    f"The scope {field} must be 1 to {LONGEST_PART} printable characters (the kind "
                    f"without '/'), got {shorten(repr(value), 60)}; "
                    'for example Scope("tenant", "acme").',
                    field="scope",
                )

    def __str__(self) -> str:
        return f"{self.kind}/{self.id}"


GLOBAL = Scope()


def check_scope(scope: object) -> Scope:
    """Refuse what is no scope, such as a tenant's name alone."""
    if not isinstance(scope, Scope):
        raise InvalidInput(
            f'scope must be a Scope, such as Scope("tenant", "acme"); got '
            f"{shorten(repr(scope), 60)}.",
            field="scope",
        )
    return scope
