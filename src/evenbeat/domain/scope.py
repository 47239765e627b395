"""Scopes: one schedule fanned out per tenant, shard or whatever else a `kind` names."""

from dataclasses import dataclass

from evenbeat.errors import InvalidInput

LONGEST_PART = 200
_EXAMPLE = 'for example Scope("tenant", "acme")'


@dataclass(frozen=True, slots=True)
class Scope:
    """What one copy of a job stands for; a job's name is unique within its scope."""

    kind: str = "global"
    id: str = "global"

    def __post_init__(self) -> None:
        _check("scope kind", self.kind)
        _check("scope id", self.id)
        # The first slash of the text form ends the kind, so only the id may hold more of them.
        if "/" in self.kind:
            raise InvalidInput(
                f"The scope kind {self.kind!r} must not contain '/', which separates "
                f"kind and id; {_EXAMPLE}.",
                field="kind",
            )

    def __str__(self) -> str:
        return f"{self.kind}/{self.id}"


def _check(name: str, value: object) -> None:
    field = name.removeprefix("scope ")
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(
            f"The {name} {value!r} must be a text that is not empty; {_EXAMPLE}.", field=field
        )
    if len(value) > LONGEST_PART:
        raise InvalidInput(
            f"The {name} {value[:40] + '…'!r} has {len(value)} characters; "
            f"at most {LONGEST_PART} are allowed, {_EXAMPLE}.",
            field=field,
        )
    if not value.isprintable():
        raise InvalidInput(
            f"The {name} {value!r} must contain printable characters only; {_EXAMPLE}.", field=field
        )


GLOBAL = Scope()
