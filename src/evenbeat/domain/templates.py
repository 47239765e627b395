"""Templates: definitions of jobs with placeholders, and filling them in.

A body is a document as `POST /api/v1/jobs` takes it. Its strings may hold `{{name}}`: a string that
is nothing else becomes the parameter's value, of its own type; within a longer string the value is
written out. `\\{{` stands for two braces. Values are put in once and never read again, so nothing
in a value can become a placeholder, and nothing is ever evaluated.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import re2
from jsonschema import Draft202012Validator, ValidationError, validators

from evenbeat import humanize
from evenbeat.errors import InvalidInput, TooLarge

MOST_PARAMETERS = 50
LONGEST_NAME = 100
LONGEST_VALUE = 10_000
LONGEST_PATTERN = 200
LARGEST_PATTERN = 512 * 1024
"""Bytes that a pattern may take when it is compiled."""
MOST_STEPS = 20_000_000
"""Steps that matching the values of a job may take: bytes of text times instructions of pattern."""
LONGEST_JOB = 1_000_000
DEEPEST = 32
TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}

Values = Mapping[str, Any]

TEMPLATE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDER = re.compile(r"\\\{\{|\{\{([^{}]*)\}\}")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter and its rules. `min` and `max` bound a number, or the length of a text."""

    name: str
    type: str = "string"
    description: str = ""
    default: Any = None
    required: bool = True
    enum: Sequence[Any] = ()
    pattern: str | None = None
    min: float | None = None
    max: float | None = None

    def json_schema(self) -> dict[str, Any]:
        """The rules but for the pattern as a JSON schema, the type first."""
        bounds = {"minimum": self.min, "maximum": self.max}
        if self.type == "string":
            high = LONGEST_VALUE if self.max is None else min(self.max, LONGEST_VALUE)
            bounds = {"minLength": self.min, "maxLength": high}
        rules = {"type": self.type, "enum": self.enum or None, **bounds}
        return {name: rule for name, rule in rules.items() if rule is not None}

    def checked(self, value: Any) -> Any:
        """The value, or an error that says what would be right."""
        for error in _VALIDATOR(self.json_schema()).iter_errors(value):
            raise self.refused(f"{_explain(error)}, got {_shown(value)}")
        if self.pattern is not None and not self.expression.fullmatch(_bytes(value)):
            raise self.refused(f"it must match {self.pattern!r}, got {_shown(value)}")
        return value

    @property
    def expression(self) -> Any:
        """The pattern, compiled; an error where it cannot be used."""
        try:
            return _compiled(self.pattern)
        except re2.error as error:
            reason = error.args[0].decode(errors="replace")
            problem = f"pattern is no regular expression that can be used: {reason}"
            raise self.refused(problem) from None

    def steps(self, value: Any) -> int:
        """How much work it is at most to match the value."""
        if self.pattern is None or not isinstance(value, str):
            return 0
        size: int = self.expression.programsize
        return size * len(_bytes(value[:LONGEST_VALUE]))

    def read(self, text: str) -> Any:
        """The value that a text stands for where only texts can be given."""
        if self.type == "string":
            return self.checked(text)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        return self.checked(value)

    def refused(self, problem: str) -> InvalidInput:
        """The error for a problem with this parameter."""
        return InvalidInput(f"Parameter {self.name!r}: {problem}.", field=f"parameters.{self.name}")


_RULES = {field.name for field in fields(Parameter)} - {"name"}


# -- saving ----------------------------------------------------------------------------------------


def check_template_name(name: str) -> None:
    """Refuse what cannot stand in a URL as it is."""
    if len(name) > LONGEST_NAME or TEMPLATE_NAME.fullmatch(name) is None:
        raise InvalidInput(
            f"A template's name has 1 to {LONGEST_NAME} letters, digits, dots, dashes and "
            f"underscores, and begins and ends with a letter or digit; got {_shown(name)}. "
            "For example: nightly-report.",
            field="name",
        )


def read_parameters(rules_by_name: Mapping[str, Mapping[str, Any]]) -> dict[str, Parameter]:
    """The parameters that a document declares, by name; all their rules are checked."""
    return {name: _checked(name, rules) for name, rules in rules_by_name.items()}


def stored_parameters(rules_by_name: Mapping[str, Mapping[str, Any]]) -> dict[str, Parameter]:
    """Those of a template that was checked when it was saved."""
    return {name: _parameter(name, rules) for name, rules in rules_by_name.items()}


def check_template(parameters: Mapping[str, Parameter], body: Mapping[str, Any]) -> None:
    """Refuse placeholders without a parameter, and parameters without a placeholder."""
    used = set(placeholders_in(body))
    for name in sorted(used - parameters.keys()):
        known = ", ".join(parameters) or "none"
        raise InvalidInput(
            f"{{{{{name}}}}} stands in the body, but there is no parameter {name!r}; there are: "
            f"{known}.",
            field="body",
        )
    for name in sorted(parameters.keys() - used):
        problem = f"it is declared, but {{{{{name}}}}} stands nowhere in the body"
        raise parameters[name].refused(problem)


def placeholders_in(value: Any) -> Iterator[str]:
    """The names of the parameters that a body asks for."""
    waiting = [(value, 1)]
    while waiting:
        part, depth = waiting.pop()
        if depth > DEEPEST:
            raise InvalidInput(f"The body is nested deeper than {DEEPEST} levels.", field="body")
        if isinstance(part, str):
            for placeholder in _PLACEHOLDER.finditer(part):
                if placeholder[1] is None:
                    continue  # two braces
                name = placeholder[1].strip()
                if PARAMETER_NAME.fullmatch(name) is None:
                    raise InvalidInput(
                        f"{placeholder[0][:60]!r} names no parameter: a name has letters, digits "
                        "and underscores, such as {{city}}. Write \\{{ for two braces.",
                        field="body",
                    )
                yield name
        elif isinstance(part, Mapping | list):
            inner = part.values() if isinstance(part, Mapping) else part
            waiting.extend((one, depth + 1) for one in inner)


def _parameter(name: str, rules: Mapping[str, Any]) -> Parameter:
    rules = {rule: value for rule, value in rules.items() if value is not None}
    return Parameter(name, **{"required": "default" not in rules} | rules)


def _checked(name: str, rules: Mapping[str, Any]) -> Parameter:
    """The parameter, when its rules fit each other, its default and its enum."""
    refused = Parameter(name).refused
    if len(name) > LONGEST_NAME or PARAMETER_NAME.fullmatch(name) is None:
        raise refused("a name has letters, digits and underscores, and begins with no digit")
    for unknown in sorted(rules.keys() - _RULES):
        raise refused(f"there is no rule {unknown!r}; there are {', '.join(sorted(_RULES))}")
    parameter = _parameter(name, rules)
    kind, low, high = parameter.type, parameter.min, parameter.max
    if kind not in TYPES:
        raise refused(f"type must be one of {', '.join(TYPES)}, got {_shown(kind)}")
    if parameter.pattern is not None:
        if kind != "string":
            raise refused("pattern is for texts")
        _ = parameter.expression
    if kind == "boolean" and (low is not None or high is not None):
        raise refused("true and false have no min and max")
    if low is not None and high is not None and low > high:
        raise refused(f"min ({_shown(low)}) is above max ({_shown(high)})")
    if parameter.required and rules.get("default") is not None:
        raise refused("a parameter that is required needs no default")
    for value in (*parameter.enum, *([] if parameter.default is None else [parameter.default])):
        parameter.checked(value)
    return parameter


# -- using -----------------------------------------------------------------------------------------


def fill(
    parameters: Mapping[str, Parameter], body: Mapping[str, Any], values: Values
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The document of the job that the body describes with these values, and all the values that
    went into it. Null counts as not given."""
    values = {name: value for name, value in values.items() if value is not None}
    for name in values:
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise InvalidInput(
                f"There is no parameter {name[:LONGEST_NAME]!r}; there are: {known}.",
                field=f"parameters.{name[:LONGEST_NAME]}",
            )
    missing = [name for name, one in parameters.items() if one.required and name not in values]
    if missing:
        raise InvalidInput(
            f"{humanize.count(len(missing), 'parameter')} must be given: {', '.join(missing)}.",
            field=f"parameters.{missing[0]}",
        )
    steps = sum(one.steps(values[name]) for name, one in parameters.items() if name in values)
    if steps > MOST_STEPS:
        raise TooLarge(
            f"The texts are too long for patterns of that size: matching them may take {steps:,} "
            f"steps, and at most {MOST_STEPS:,} are allowed. Give shorter texts, or a simpler "
            "pattern.",
            field="parameters",
        )
    values = {
        name: parameter.checked(values[name]) if name in values else parameter.default
        for name, parameter in parameters.items()
    }
    # Before filling in: a small body with many placeholders can grow huge.
    size = sum(len(_written(values[name])) for name in placeholders_in(body))
    if size > LONGEST_JOB:
        raise TooLarge(
            f"Filled in, the values take {size:,} bytes; at most {LONGEST_JOB:,} are allowed.",
            field="parameters",
        )
    job = {name: _filled(part, values) for name, part in body.items()}
    job = {name: part for name, part in job.items() if part is not None}
    return job, {name: value for name, value in values.items() if value is not None}


def _filled(part: Any, values: Values) -> Any:
    if isinstance(part, Mapping):
        return {name: _filled(inner, values) for name, inner in part.items()}
    if isinstance(part, list):
        return [_filled(inner, values) for inner in part]
    if not isinstance(part, str):
        return part
    whole = _PLACEHOLDER.fullmatch(part)
    if whole is not None and whole[1] is not None:
        return values[whole[1].strip()]
    return _PLACEHOLDER.sub(
        lambda match: "{{" if match[1] is None else _written(values[match[1].strip()]), part
    )


def _written(value: Any) -> str:
    """A value within a longer text; one that was not given leaves nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


# -- values ----------------------------------------------------------------------------------------


@lru_cache(64)
def _compiled(pattern: str) -> Any:
    """Not by `re`: there a few characters of pattern and of value can take forever. RE2 takes time
    in proportion to the text, so much memory and no more, and lets others run meanwhile."""
    options = re2.Options()
    options.max_mem, options.never_capture, options.log_errors = LARGEST_PATTERN, True, False
    return re2.compile(pattern, options)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


_VALIDATOR = validators.extend(
    Draft202012Validator,
    # JSON schema takes 7.0 for an integer, and Python's NaN for a number.
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many({
        "integer": lambda _, value: isinstance(value, int) and not isinstance(value, bool),
        "number": lambda _, value: (
            isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        ),
    }),
)  # fmt: skip


def _explain(error: ValidationError) -> str:
    """What would be right, in words for people."""
    rule = error.validator_value
    match error.validator:
        case "type":
            return f"it must be {TYPES[rule]}"
        case "enum":
            return f"it must be one of {', '.join(map(_shown, rule))}"
        case _:
            which = "least" if str(error.validator).startswith("min") else "most"
            unit = " characters" if str(error.validator).endswith("Length") else ""
            verb = "have" if unit else "be"
            return f"it must {verb} at {which} {_shown(rule)}{unit}"


def _shown(value: Any) -> str:
    if type(value) in {int, float} and abs(value) <= LONGEST_VALUE:
        return f"{value:,g}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]} …"
