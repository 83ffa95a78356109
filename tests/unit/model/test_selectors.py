"""Selectors, with the words of a real API server (1.36) for each way to get them wrong."""

from __future__ import annotations

import contextlib

import pytest

from sandpool.model.selectors import (
    EVERYTHING,
    LabelSelectorStruct,
    SelectorError,
    SelectorRequirement,
    from_struct,
    parse_fields,
    parse_labels,
)
from support.api.counted_calls import calls_of
from support.api.opcodes import opcodes

VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a=b", {"a": "c"}, False),
        ("a=b", {}, False),
        ("a==b", {"a": "b"}, True),
        ("a!=b", {"a": "b"}, False),
        ("a!=b", {}, True),
        ("a=", {"a": ""}, True),
        ("a=", {}, False),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("! a", {"a": "x"}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b, c)", {"a": "d"}, False),
        ("a in (b, c)", {}, False),
        ("a in ()", {"a": ""}, True),
        ("a in (b,)", {"a": ""}, True),
        ("a notin (b,c)", {"a": "d"}, True),
        ("a notin (b,c)", {}, True),
        ("a notin (b,c)", {"a": "b"}, False),
        ("a>1", {"a": "2"}, True),
        ("a>1", {"a": "1"}, False),
        ("a<1", {"a": "0"}, True),
        ("a<1", {"a": "x"}, False),
        ("a<1", {}, False),
        ("in in (in,notin)", {"in": "notin"}, True),
        ("x.io/a=b,c", {"x.io/a": "b", "c": ""}, True),
        ("x.io/a=b,c", {"x.io/a": "b"}, False),
        (" a = b , c ", {"a": "b", "c": "1"}, True),
    ],
)
def test_labels(selector: str, labels: dict[str, str], expected: bool) -> None:
    assert parse_labels(selector).matches(labels) is expected


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in ((b)", "unable to parse requirement: found '(', expected: ',', ')' or identifier"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a==,=b", "found '=', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a,", "found '', expected: identifier after ','"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a)b", "unable to parse requirement: found ')', expected: in, notin, =, ==, !=, gt, lt"),
        ("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("!!a", "unable to parse requirement: found '!', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=(b", "unable to parse requirement: found '(', expected: identifier"),
        ("a=-x", f'unable to parse requirement: values[0][a]: Invalid value: "-x": {VALUE_RULE}'),
        (
            "a>-x",
            "unable to parse requirement: [values[0]: Invalid value: \"-x\": for 'Gt', 'Lt' operators, the value must be "
            f'an integer, values[0][a]: Invalid value: "-x": {VALUE_RULE}]',
        ),
        (
            "a/b/c",
            'unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label key must consist of alphanumeric '
            "characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
            "'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an "
            "optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        ),
    ],
)
def test_labels_that_cannot_be_understood(selector: str, message: str) -> None:
    with pytest.raises(SelectorError) as refused:
        parse_labels(selector)
    assert str(refused.value) == message


def test_a_selector_is_written_in_its_normal_form() -> None:
    text = "z>3, w, a in (c, ,b), !x, y notin (), b != c, c == d"
    assert str(parse_labels(text)) == "a in (,b,c),b!=c,c==d,w,!x,y notin (),z>3"
    assert str(parse_labels(str(parse_labels(text)))) == str(parse_labels(text))


def test_struct_form() -> None:
    struct = LabelSelectorStruct(
        match_labels={"a": "b"},
        match_expressions=(
            SelectorRequirement(key="c", operator="In", values=("d", "e")),
            SelectorRequirement(key="f", operator="NotIn", values=("g",)),
            SelectorRequirement(key="h", operator="Exists"),
            SelectorRequirement(key="i", operator="DoesNotExist"),
        ),
    )
    selector = from_struct(struct)
    assert str(selector) == "a=b,c in (d,e),f notin (g),h,!i"
    assert selector.matches({"a": "b", "c": "e", "h": ""})
    assert not selector.matches({"a": "b", "c": "e", "h": "", "i": ""})
    assert from_struct(LabelSelectorStruct()) == EVERYTHING


@pytest.mark.parametrize(
    ("operator", "values", "message"),
    [
        ("in", ("x",), '"in" is not a valid label selector operator'),
        ("In", (), "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"),
        ("Exists", ("x",), 'values: Invalid value: ["x"]: values set must be empty for exists and does not exist'),
    ],
)
def test_struct_form_that_is_wrong(operator: str, values: tuple[str, ...], message: str) -> None:
    expression = SelectorRequirement(key="a", operator=operator, values=values)
    with pytest.raises(SelectorError) as refused:
        from_struct(LabelSelectorStruct(match_expressions=(expression,)))
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("selector", "values", "expected"),
    [
        ("", {}, True),
        ("metadata.name=a", {"metadata.name": "a"}, True),
        ("metadata.name==a", {"metadata.name": "b"}, False),
        ("metadata.name!=a", {"metadata.name": "b"}, True),
        ("a=", {}, True),
        ("a!=", {}, False),
        (r"a=b\,c\=d\\", {"a": "b,c=d\\"}, True),
        ("a=b,c!=d", {"a": "b", "c": "d"}, False),
        ("a=b,,c=d,", {"a": "b", "c": "d"}, True),
    ],
)
def test_fields(selector: str, values: dict[str, str], expected: bool) -> None:
    assert parse_fields(selector).matches(values) is expected


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_fields_that_cannot_be_understood(selector: str, message: str) -> None:
    with pytest.raises(SelectorError) as refused:
        parse_fields(selector)
    assert str(refused.value) == message


def test_a_field_selector_is_written_as_it_was_read() -> None:
    selector = parse_fields(r"metadata.name=a,metadata.namespace!=b\,c")
    assert str(selector) == r"metadata.name=a,metadata.namespace!=b\,c"


def test_a_selector_of_too_many_requirements_is_not_read_to_its_end() -> None:
    """A request holds thirty thousand: parsing all of them took half a second."""

    def parse() -> None:
        with pytest.raises(SelectorError, match="requirements"):
            parse_labels(",".join(["a"] * 9_000))

    assert calls_of(parse) < 10_000
    with pytest.raises(SelectorError, match="names and operators"):
        parse_labels(f"a in ({','.join(['b'] * 30_000)})")


@pytest.mark.parametrize("selector", ["a" * 60_000, "a=" + "b" * 60_000], ids=["no operator", "a long value"])
def test_a_long_field_is_looked_at_once(selector: str) -> None:
    def parse() -> None:
        with contextlib.suppress(SelectorError):
            parse_fields(selector)

    assert opcodes(parse) < 1000


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("a=b,c=d", ["a", "c"]),
        ("a=b\\,c=d,e=f", None),
        ("a=b\\,c,e=f", ["a", "e"]),
        ("a=b\\\\,e=f", ["a", "e"]),
        (",a=b,,", ["a"]),
        ("", []),
    ],
)
def test_fields_are_split_at_commas_that_are_not_escaped(text: str, fields: list[str] | None) -> None:
    if fields is None:
        with pytest.raises(SelectorError, match="unescaped"):
            parse_fields(text)
    else:
        assert [term.field for term in parse_fields(text).terms] == fields
