"""Templates: definitions of jobs with holes in them, and what fills the holes.

A body is a document as `POST /api/v1/jobs` takes it. Its strings may hold `{{name}}`: a string that
is nothing else becomes the parameter's value, of its own type; within a longer string the value is
written out. `\\{{` stands for two braces. Values are put in once and never read again, so nothing
in a value can become a placeholder, and nothing is ever evaluated.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from evenbeat.errors import InvalidInput, TooLarge
from evenbeat.humanize import count

MOST_PARAMETERS = 50
LONGEST_NAME = 100
LONGEST_VALUE = 10_000
LONGEST_PATTERN = 200
LONGEST_JOB = 1_000_000
DEEPEST = 32
TYPES = ("string", "integer", "number", "boolean")

Values = Mapping[str, Any]

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOLE = re.compile(r"\\\{\{|\{\{([^{}]*)\}\}")
_COMPILED = 32
_WORDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
_RULES = frozenset({"type", "description", "default", "required", "enum", "pattern", "min", "max"})


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter and its rules. `min` and `max` bound a number, or the length of a text."""

    name: str
    type: str
    description: str = ""
    default: Any = None
    required: bool = True
    enum: tuple[Any, ...] = ()
    pattern: str | None = None
    min: float | None = None
    max: float | None = None

    def checked(self, value: Any) -> Any:
        """The value, or an error that says what would be right."""
        problem = self._problem(value)
        if problem is not None:
            raise self._wrong(f"{problem}, got {_shown(value)}")
        return value

    def read(self, text: str) -> Any:
        """The value that a text stands for where only texts can be given."""
        if self.type == "string":
            return self.checked(text)
        try:
            return self.checked(json.loads(text))
        except (ValueError, RecursionError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise self._wrong(f"it must be {_WORDS[self.type]}, got {_shown(text)}") from None

    def _problem(self, value: Any) -> str | None:
        if not _is_of(self.type, value):
            return f"it must be {_WORDS[self.type]}"
        if self.enum and value not in self.enum:
            return f"it must be one of {', '.join(map(_shown, self.enum))}"
        if isinstance(value, bool):
            return None
        if isinstance(value, str):
            return self._problem_of_text(value)
        return _outside(value, self.min, self.max, "it must be at {which} {bound}")

    def _problem_of_text(self, value: str) -> str | None:
        if len(value) > LONGEST_VALUE:
            return f"it must have at most {LONGEST_VALUE:,} characters"
        if self.pattern is not None and not _matches(self.pattern, value):
            return f"it must match {self.pattern!r}"
        return _outside(
            len(value), self.min, self.max, "it must have at {which} {bound} characters"
        )

    def _wrong(self, problem: str) -> InvalidInput:
        return InvalidInput(f"Parameter {self.name!r}: {problem}.", field=f"parameters.{self.name}")


class Use(NamedTuple):
    """A template, filled in: the document of the job, and the values that went into it."""

    job: dict[str, Any]
    values: dict[str, Any]


# -- saving ----------------------------------------------------------------------------------------


def check_template_name(name: str) -> None:
    """Refuse what cannot stand in an address as it is."""
    if len(name) > LONGEST_NAME or _NAME.fullmatch(name) is None:
        raise InvalidInput(
            f"A template's name has 1 to {LONGEST_NAME} letters, digits, dots, dashes and "
            f"underscores, and begins and ends with a letter or digit; got {_shown(name)}. "
            "For example: nightly-report.",
            field="name",
        )


def read_parameters(given: Mapping[str, Mapping[str, Any]]) -> dict[str, Parameter]:
    """The parameters that a document declares, by name; every rule of theirs is checked."""
    if len(given) > MOST_PARAMETERS:
        raise InvalidInput(
            f"A template has at most {MOST_PARAMETERS} parameters, got {len(given)}.",
            field="parameters",
        )
    return {name: _parameter(name, rules) for name, rules in given.items()}


def check_template(parameters: Mapping[str, Parameter], body: Mapping[str, Any]) -> None:
    """Refuse a body with holes that no parameter fills, and parameters that fill none."""
    used = set(holes_in(body))
    for name in sorted(used - parameters.keys()):
        known = ", ".join(parameters) or "none"
        raise InvalidInput(
            f"{{{{{name}}}}} stands in the body, but there is no parameter {name!r}; there are: "
            f"{known}.",
            field="body",
        )
    for name in sorted(parameters.keys() - used):
        raise InvalidInput(
            f"Parameter {name!r} is declared, but {{{{{name}}}}} stands nowhere in the body.",
            field=f"parameters.{name}",
        )


def holes_in(value: Any) -> Iterator[str]:
    """The names of the parameters that a body asks for."""
    waiting = [(value, 1)]
    while waiting:
        part, depth = waiting.pop()
        if depth > DEEPEST:
            raise InvalidInput(f"The body is nested deeper than {DEEPEST} levels.", field="body")
        if isinstance(part, str):
            yield from (_named(hole) for hole in _HOLE.finditer(part) if hole[1] is not None)
        elif isinstance(part, Mapping | list):
            inner = part.values() if isinstance(part, Mapping) else part
            waiting.extend((one, depth + 1) for one in inner)


def _named(hole: re.Match[str]) -> str:
    name = hole[1].strip()
    if _PARAMETER.fullmatch(name) is None:
        raise InvalidInput(
            f"{hole[0][:60]!r} names no parameter: a name has letters, digits and underscores, "
            "such as {{city}}. Write \\{{ for two braces.",
            field="body",
        )
    return name


def _parameter(name: str, rules: Mapping[str, Any]) -> Parameter:
    def wrong(problem: str) -> InvalidInput:
        return InvalidInput(f"Parameter {name!r}: {problem}.", field=f"parameters.{name}")

    if len(name) > LONGEST_NAME or _PARAMETER.fullmatch(name) is None:
        raise wrong("a name has letters, digits and underscores, and begins with no digit")
    unknown = sorted(rules.keys() - _RULES)
    if unknown:
        raise wrong(f"there is no rule {unknown[0]!r}; there are {', '.join(sorted(_RULES))}")
    kind = rules.get("type", "string")
    if kind not in TYPES:
        raise wrong(f"type must be one of {', '.join(TYPES)}, got {_shown(kind)}")
    _check_rules(rules, kind, wrong)
    default = rules.get("default")
    made = Parameter(
        name,
        kind,
        description=rules.get("description") or "",
        default=default,
        required=rules.get("required", default is None),
        enum=tuple(rules.get("enum") or ()),
        pattern=rules.get("pattern"),
        min=rules.get("min"),
        max=rules.get("max"),
    )
    for value in (*made.enum, *(() if default is None else (default,))):
        made.checked(value)
    return made


def _check_rules(rules: Mapping[str, Any], kind: str, wrong: Any) -> None:
    pattern, low, high = rules.get("pattern"), rules.get("min"), rules.get("max")
    if pattern is not None and kind != "string":
        raise wrong("pattern is for texts")
    if kind == "boolean" and (low is not None or high is not None):
        raise wrong("true and false have no min and max")
    if low is not None and high is not None and low > high:
        raise wrong(f"min ({_number(low)}) is above max ({_number(high)})")
    if rules.get("required") and rules.get("default") is not None:
        raise wrong("a parameter that is required needs no default")
    if pattern is None:
        return
    if len(pattern) > LONGEST_PATTERN:
        raise wrong(f"pattern has at most {LONGEST_PATTERN} characters")
    try:
        _compiled(pattern)
    except SchemaError as error:
        reason = str(error).strip().rpartition("\n")[2].partition(": ")[2].rstrip(".")
        raise wrong(f"pattern is no regular expression that can be used: {reason}") from None


# -- using -----------------------------------------------------------------------------------------


def fill(parameters: Mapping[str, Parameter], body: Mapping[str, Any], given: Values) -> Use:
    """The job that the body describes with these values. Null counts as not given."""
    values = _values(parameters, {name: v for name, v in given.items() if v is not None})
    _check_size(sum(len(_written(values[name])) for name in holes_in(body)))
    job = {name: _filled(value, values) for name, value in body.items()}
    job = {name: value for name, value in job.items() if value is not None}
    _check_size(len(json.dumps(job)))
    return Use(job, {name: value for name, value in values.items() if value is not None})


def _check_size(size: int) -> None:
    """Asked before the holes are filled, too: a small body with many of them can grow huge."""
    if size > LONGEST_JOB:
        raise TooLarge(
            f"Filled in, the job takes {size:,} bytes; at most {LONGEST_JOB:,} are allowed.",
            field="parameters",
        )


def _values(parameters: Mapping[str, Parameter], given: Values) -> dict[str, Any]:
    for name in given:
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise InvalidInput(
                f"There is no parameter {name[:LONGEST_NAME]!r}; there are: {known}.",
                field=f"parameters.{name[:LONGEST_NAME]}",
            )
    missing = [p.name for p in parameters.values() if p.required and p.name not in given]
    if missing:
        raise InvalidInput(
            f"{count(len(missing), 'parameter')} must be given: {', '.join(missing)}.",
            field=f"parameters.{missing[0]}",
        )
    return {
        name: one.checked(given[name]) if name in given else one.default
        for name, one in parameters.items()
    }


def _filled(value: Any, values: Values) -> Any:
    if isinstance(value, str):
        return _filled_text(value, values)
    if isinstance(value, Mapping):
        return {name: _filled(inner, values) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, values) for inner in value]
    return value


def _filled_text(text: str, values: Values) -> Any:
    whole = _HOLE.fullmatch(text)
    if whole is not None and whole[1] is not None:
        return values[whole[1].strip()]

    def put(hole: re.Match[str]) -> str:
        return "{{" if hole[1] is None else _written(values[hole[1].strip()])

    return _HOLE.sub(put, text)


def _written(value: Any) -> str:
    """A value within a longer text; one that was not given leaves nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


# -- values ----------------------------------------------------------------------------------------


@lru_cache(_COMPILED)
def _compiled(pattern: str) -> SchemaValidator:
    """The pattern, for whole texts. Not by `re`: there a few characters of pattern and of value can
    take for ever, and everyone else with them. This engine takes time by the length of the text."""
    SchemaValidator(core_schema.str_schema(pattern=pattern))  # by itself: no bracket may close ours
    return SchemaValidator(core_schema.str_schema(pattern=rf"\A(?:{pattern})\z"))


def _matches(pattern: str, text: str) -> bool:
    try:
        _compiled(pattern).validate_python(text)
    except ValidationError:
        return False
    return True


def _is_of(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int)
        case "number":
            return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return False


def _outside(value: float, low: float | None, high: float | None, words: str) -> str | None:
    if low is not None and value < low:
        return words.format(which="least", bound=_number(low))
    if high is not None and value > high:
        return words.format(which="most", bound=_number(high))
    return None


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else _shown(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]} …"
