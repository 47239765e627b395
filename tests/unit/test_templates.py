"""Templates: what is kept, what is refused, and what values make of them."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.domain.templates import (
    check_template,
    check_template_name,
    fill,
    placeholders_in,
    read_parameters,
    stored_parameters,
)
from evenbeat.errors import InvalidInput, TooLarge

names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet="ab {}\\é", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def filled(body: Any, rules: dict[str, dict[str, Any]], **values: Any) -> Any:
    return fill(read_parameters(rules), {"it": body}, values)[0].get("it")


STRING = {"a": {"type": "string"}}


@pytest.mark.parametrize(
    ("kind", "value"),
    [("string", "x"), ("integer", 3), ("number", 2.5), ("number", 2), ("boolean", False)],
)
def test_a_string_that_is_only_a_hole_takes_the_value_with_its_type(kind: str, value: Any) -> None:
    assert filled("{{a}}", {"a": {"type": kind}}, a=value) is value
    assert filled({"deep": ["{{ a }}"]}, {"a": {"type": kind}}, a=value) == {"deep": [value]}


@pytest.mark.parametrize(
    ("body", "made"),
    [
        ("x {{a}} y", "x 7 y"),
        ("{{a}}{{a}}", "77"),
        (" {{a}}", " 7"),
        ("\\{{a}} {{a}}", "{{a}} 7"),
        ("{{a}", "{{a}"),
        ("{a}", "{a}"),
        ("{{a}} }}", "7 }}"),
        ("{{a}}}", "7}"),
        ("{{{a}}}", "{7}"),
        ("\\{{ {{a}}", "{{ 7"),
        ("\\{{", "{{"),
        (5, 5),
        (None, None),
        ({"{{a}}": 1}, {"{{a}}": 1}),
    ],
)
def test_within_a_text_the_value_is_written_out(body: Any, made: Any) -> None:
    assert filled(body, {"a": {"type": "integer"}}, a=7) == made


def test_truth_is_written_as_json_has_it() -> None:
    assert filled("is {{a}}", {"a": {"type": "boolean"}}, a=True) == "is true"


@given(st.text(alphabet="ab{}\\ \n", max_size=20))
def test_nothing_in_a_value_is_ever_read(value: str) -> None:
    """A value that looks like a placeholder stays what it is, wherever it lands."""
    rules = {"a": {"type": "string"}, "b": {"type": "string", "default": "SECRET"}}
    body = {"only": "{{a}}", "within": "<{{a}}|{{b}}>"}
    made, _ = fill(read_parameters(rules), body, {"a": value})
    assert made == {"only": value, "within": f"<{value}|SECRET>"}


@given(st.dictionaries(names, json_values, max_size=4))
def test_a_body_without_holes_comes_out_as_it_went_in(body: dict[str, Any]) -> None:
    try:
        holes = list(placeholders_in(body))
    except InvalidInput:
        return
    if not holes and "\\{{" not in repr(body).replace("\\\\", "\\"):
        assert fill({}, body, {})[0] == {k: v for k, v in body.items() if v is not None}


def test_what_is_not_given_takes_its_default_or_leaves_nothing() -> None:
    rules = {
        "a": {"type": "integer", "default": 3},
        "b": {"type": "string", "required": False},
    }
    body = {"x": "{{a}}", "y": "{{b}}", "z": "<{{b}}>"}
    job, values = fill(read_parameters(rules), body, {"a": None})
    assert job == {"x": 3, "z": "<>"}
    assert values == {"a": 3}


@pytest.mark.parametrize(
    ("rules", "value", "words"),
    [
        ({"type": "integer"}, "7", "it must be a whole number, got '7'"),
        ({"type": "integer"}, 7.0, "a whole number"),
        ({"type": "integer"}, True, "a whole number"),
        ({"type": "number"}, float("nan"), "a number"),
        ({"type": "number"}, float("inf"), "a number"),
        ({"type": "boolean"}, 1, "true or false"),
        ({"type": "string"}, 1, "a text"),
        ({"type": "string"}, ["x"], "a text"),
        ({"type": "string"}, "x" * 10_001, "at most 10,000 characters"),
        ({"type": "integer", "min": 1}, 0, "at least 1, got 0"),
        ({"type": "number", "max": 2.5}, 2.6, "at most 2.5"),
        ({"type": "string", "min": 2}, "x", "at least 2 characters"),
        ({"type": "string", "max": 2}, "xyz", "at most 2 characters"),
        ({"type": "string", "enum": ["a", "b"]}, "c", "one of 'a', 'b'"),
        ({"type": "string", "pattern": "[a-z]+"}, "ab1", "must match '[a-z]+'"),
        ({"type": "string", "pattern": "a|b"}, "ab", "must match 'a|b'"),
        ({"type": "string", "pattern": "a$"}, "a\n", "must match 'a$'"),
        ({"type": "integer", "min": 10**400}, 1, "at least 1000"),
    ],
)
def test_a_wrong_value_is_named(rules: dict[str, Any], value: Any, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        filled("{{a}}", {"a": rules}, a=value)
    assert words in str(caught.value)
    assert caught.value.field == "parameters.a"


def test_unknown_and_missing_values_are_named() -> None:
    with pytest.raises(InvalidInput, match="There is no parameter 'b'; there are: a"):
        filled("{{a}}", STRING, a="x", b="y")
    both = {"a": {}, "b": {}}
    with pytest.raises(InvalidInput, match="2 parameters must be given: a, b"):
        fill(read_parameters(both), {"x": "{{a}}{{b}}"}, {})


def test_a_job_that_would_be_huge_is_refused() -> None:
    with pytest.raises(TooLarge, match="at most 1,000,000"):
        filled(["{{a}}"] * 200, STRING, a="x" * 9_000)


def test_no_pattern_and_no_text_takes_for_ever() -> None:
    """With an engine that goes back and tries again, each of these would outlive the universe."""
    for pattern in ("(a+)+b", "(a|a)*b", "a*" * 50 + "b"):
        with pytest.raises(InvalidInput, match="must match"):
            filled("{{a}}", {"a": {"pattern": pattern}}, a="a" * 10_000)
    assert list(placeholders_in("{{" * 400_000)) == []


def test_patterns_that_are_large_take_short_texts() -> None:
    """Matched one state at a time, this pattern took seconds for each of these texts."""
    rules = {"pattern": "((a{1,30}){1,30}){1,1}x"}
    assert filled("{{a}}", {"a": rules}, a="a" * 50 + "x")
    with pytest.raises(TooLarge, match=r"may take [\d,]+ steps, and at most 20,000,000"):
        filled("{{a}}{{b}}", {"a": rules, "b": rules}, a="a" * 9_999, b="a" * 9_999)


def test_what_is_stored_is_not_matched_again_to_be_shown() -> None:
    """A list of templates holds thousands of patterns; one of an older engine is refused when it
    is used."""
    stored = stored_parameters({"a": {"pattern": "[a-z&&[^b]]", "enum": ["c"]}})
    assert stored["a"].pattern == "[a-z&&[^b]]"
    with pytest.raises(InvalidInput, match="pattern is no regular expression that can be used"):
        fill(stored_parameters({"a": {"pattern": "a(?=b)"}}), {"x": "{{a}}"}, {"a": "c"})


def test_letters_of_all_scripts_have_a_name() -> None:
    assert filled("{{a}}", {"a": {"pattern": r"[\pL ]+"}}, a="Zoë Müller")


def test_a_small_body_does_not_grow_huge_before_it_is_refused() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="300,000,000 bytes"):
            filled("{{a}}" * 30_000, STRING, a="x" * 10_000)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


# -- saving ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"type": "date"}, "type must be one of string, integer, number, boolean"),
        ({"kind": "string"}, "there is no rule 'kind'"),
        ({"default": 3}, "it must be a text, got 3"),
        ({"type": "integer", "enum": [1, "2"]}, "a whole number, got '2'"),
        ({"enum": ["a"], "default": "b"}, "one of 'a'"),
        ({"pattern": "("}, "can be used: missing )"),
        ({"pattern": "a)|(b"}, "can be used: unexpected )"),
        ({"pattern": r"(a)\1"}, "invalid escape sequence"),
        ({"pattern": "((a{100}){100}){100}"}, "invalid repetition size"),
        ({"pattern": r"\pL{1,200}"}, "pattern too large"),
        ({"type": "integer", "pattern": "x"}, "pattern is for texts"),
        ({"type": "boolean", "min": 0}, "no min and max"),
        ({"type": "integer", "min": 3, "max": 2}, "min (3) is above max (2)"),
        ({"type": "integer", "min": 10**400, "max": 2}, "is above max (2)"),
        ({"required": True, "default": "x"}, "needs no default"),
    ],
)
def test_wrong_rules_are_refused_when_they_are_kept(rules: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_parameters({"a": rules})
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["", "1a", "a b", "a-b", "ä", "x" * 101])
def test_wrong_names_of_parameters(name: str) -> None:
    with pytest.raises(InvalidInput, match="a name has letters, digits and underscores"):
        read_parameters({name: {}})


def test_holes_and_parameters_must_match() -> None:
    with pytest.raises(InvalidInput, match=r"{{b}} stands in the body, .* there are: a"):
        check_template(read_parameters(STRING), {"x": "{{a}} {{b}}"})
    with pytest.raises(InvalidInput, match=r"declared, but {{a}} stands nowhere"):
        check_template(read_parameters(STRING), {"x": "\\{{a}}"})
    with pytest.raises(InvalidInput, match="names no parameter"):
        check_template({}, {"x": "{{a.b}}"})
    with pytest.raises(InvalidInput, match="names no parameter"):
        check_template({}, {"x": "{{}}"})
    check_template(read_parameters(STRING), {"x": {"y": [["{{ a }}"]]}})


def test_endless_nesting_is_refused() -> None:
    deep: Any = "x"
    for _ in range(50):
        deep = [deep]
    with pytest.raises(InvalidInput, match="deeper than 32"):
        check_template({}, {"x": deep})


@pytest.mark.parametrize("name", ["", "a/b", "a b", ".a", "a.", "ü", "x" * 101, "a\n"])
def test_names_that_cannot_stand_in_an_address(name: str) -> None:
    with pytest.raises(InvalidInput, match="letters, digits, dots"):
        check_template_name(name)


@pytest.mark.parametrize("name", ["a", "nightly-report", "v1.2_x"])
def test_names_that_can(name: str) -> None:
    check_template_name(name)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "7", "7"),
        ("string", "true", "true"),
        ("integer", "7", 7),
        ("number", "7.5", 7.5),
        ("boolean", "true", True),
    ],
)
def test_a_text_is_read_as_the_parameter_wants_it(kind: str, text: str, value: Any) -> None:
    assert read_parameters({"a": {"type": kind}})["a"].read(text) == value


@pytest.mark.parametrize(("kind", "text"), [("integer", "x"), ("boolean", "1"), ("number", "NaN")])
def test_a_text_that_is_no_such_value(kind: str, text: str) -> None:
    with pytest.raises(InvalidInput, match="it must be"):
        read_parameters({"a": {"type": kind}})["a"].read(text)
