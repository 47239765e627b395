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
        parts: dict[str, object] = {"kind": self.kind, "id": self.id}
        for field, value in parts.items():
            shown, problem = repr(value), ""
            if not isinstance(value, str) or not value.strip():
                problem = "must be a text that is not empty"
            elif len(value) > LONGEST_PART:
                shown = repr(value[:40] + "…")
                problem = f"has {len(value)} characters; at most {LONGEST_PART} are allowed"
            elif not value.isprintable():
                problem = "must contain printable characters only"
            elif field == "kind" and "/" in value:
                # The first slash of the text form ends the kind; the id may hold more of them.
                problem = "must not contain '/', which separates kind and id"
            if problem:
                raise InvalidInput(f"The scope {field} {shown} {problem}; {_EXAMPLE}.", field=field)

    def __str__(self) -> str:
        return f"{self.kind}/{self.id}"


GLOBAL = Scope()
