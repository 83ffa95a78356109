from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.controlplane.apiserver import body
from sandpool.controlplane.apiserver.body import Malformed, decode, decode_media, decode_object
from sandpool.controlplane.apiserver.handlers.write import check_kind, decode_patch, patch_type
from sandpool.controlplane.apiserver.json_text import complaint
from sandpool.controlplane.apiserver.response import warnings
from sandpool.controlplane.apiserver.yaml_body import YamlError, from_yaml
from sandpool.kube.errors import BadRequest, Invalid, RequestTooLarge, UnsupportedMedia
from sandpool.model.kinds import CONFIG_MAPS, PODS, SANDBOXES
from sandpool.model.patches import Patch, PatchType
from support.api.counted_calls import calls_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ('{"a": "b', "unexpected end of JSON input"),
        ("{bad", "invalid character 'b' looking for beginning of object key string"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("hello", "invalid character 'h' looking for beginning of value"),
        ("{} x", "invalid character 'x' after top-level value"),
        ('"\\q"', "invalid character 'q' in string escape code"),
        ('"a\nb"', "invalid character '\\n' in string literal"),
        ("'x'", "invalid character '\\'' looking for beginning of value"),
    ],
)
def test_what_go_would_say(text: str, words: str) -> None:
    assert complaint(text.encode()) == words


_documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(_documents)
def test_of_good_json_there_is_nothing_to_complain(document: Any) -> None:
    assert complaint(json.dumps(document).encode()) == ""


@given(st.text(alphabet='{}[]",:01e-.tru\\ \nnl', max_size=30))
def test_bad_json_always_gets_a_complaint(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        assert complaint(text.encode()) != ""


def test_depth() -> None:
    assert decode(b"[" * 200 + b"]" * 200, 200) is not None
    for depth in (201, 1000, 40_000):
        with pytest.raises(Malformed, match="exceeded max depth"):
            decode(b"[" * depth + b"]" * depth, 200)
    wide = b"[" + b"{}," * 10_000 + b"{}]"
    assert len(decode(wide, 200)) == 10_001


def test_invalid_utf8() -> None:
    with pytest.raises(Malformed):
        decode(b'{"a":"\xff\xfe"}', 200)


def test_what_is_no_object_is_unrecognized() -> None:
    with pytest.raises(BadRequest) as caught:
        decode_object(b"{bad", "application/json", "Pod", 200)
    assert caught.value.message == (
        "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: "
        "invalid character 'b' looking for beginning of object key string ({bad)"
    )
    with pytest.raises(BadRequest, match=r"cannot unmarshal array .* \(5b5d\)"):
        decode_object(b"[]", "", "Pod", 200)
    with pytest.raises(BadRequest, match=r"unexpected end of JSON input \(<empty>\)"):
        decode_object(b"", "", "Pod", 200)


def test_media_types() -> None:
    assert decode_media(b'{"a":1}', "", 200) == {"a": 1}
    assert decode_media(b"a: 1", "application/yaml", 200) == {"a": 1}
    with pytest.raises(UnsupportedMedia, match="the body of the request was in an unknown format"):
        decode_media(b"{}", "text/plain", 200)


def test_yaml_is_read_as_the_json_that_it_stands_for() -> None:
    text = b'a: 2024-01-01\nb: [yes, 1, 0.5, null, "x"]\n1: {<<: x}\n'
    assert msgspec.json.decode(from_yaml(text)) == {"a": "2024-01-01", "b": [True, 1, 0.5, None, "x"], "1": {"<<": "x"}}


@pytest.mark.parametrize(
    "text", ["a: [", "a: &x 1\nb: *x", "!!python/object:os.system {}", "? [a]\n: 1", "a: !!binary aGk="]
)
def test_yaml_beyond_json_is_refused(text: str) -> None:
    with pytest.raises(YamlError, match="yaml"):
        from_yaml(text.encode())


SANDBOX = {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox"}


def test_kinds_that_fit() -> None:
    check_kind(SANDBOXES, True, SANDBOX, b"")
    check_kind(CONFIG_MAPS, False, {}, b"")
    check_kind(CONFIG_MAPS, False, {"kind": "ConfigMap"}, b"")


def test_kinds_that_do_not_fit() -> None:
    with pytest.raises(BadRequest, match=r"Object 'Kind' is missing in '\{\}' \(\{\}\)"):
        check_kind(SANDBOXES, True, {}, b"{}")
    with pytest.raises(BadRequest) as version:
        check_kind(SANDBOXES, True, SANDBOX | {"apiVersion": "v9"}, b"")
    assert version.value.message == (
        "the API version in the data (v9) does not match the expected API version (agents.x-k8s.io/v1beta1)"
    )
    with pytest.raises(
        Invalid, match=r'Pod\.agents.x-k8s\.io "a" is invalid: kind: Invalid value: "Pod": must be Sandbox'
    ):
        check_kind(SANDBOXES, True, SANDBOX | {"kind": "Pod", "metadata": {"name": "a"}}, b"")
    with pytest.raises(BadRequest, match='Pod in version "v1" cannot be handled as a ConfigMap'):
        check_kind(CONFIG_MAPS, False, {"kind": "Pod", "apiVersion": "v1"}, b"")


def test_patch_types() -> None:
    assert patch_type("application/merge-patch+json", SANDBOXES) is PatchType.MERGE
    assert patch_type("application/strategic-merge-patch+json", PODS) is PatchType.STRATEGIC
    with pytest.raises(UnsupportedMedia, match="accepted media types include: application/json-patch"):
        patch_type("application/strategic-merge-patch+json", SANDBOXES)
    with pytest.raises(UnsupportedMedia, match="use kubectl apply without --server-side"):
        patch_type("application/apply-patch+yaml", SANDBOXES)
    with pytest.raises(UnsupportedMedia):
        patch_type("", SANDBOXES)


@pytest.mark.parametrize(
    ("kind", "raw", "words"),
    [
        (
            PatchType.MERGE,
            b"[]",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (PatchType.MERGE, b"{", "error decoding patch: unexpected end of JSON input"),
        (PatchType.MERGE, b"null", "Invalid JSON Patch"),
        (
            PatchType.JSON,
            b"{}",
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            PatchType.JSON,
            b"[1]",
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (PatchType.STRATEGIC, b"{", "unexpected end of JSON input"),
    ],
)
def test_bad_patches(kind: PatchType, raw: bytes, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        decode_patch(kind, raw, 200)
    assert caught.value.message == words


def test_good_patches() -> None:
    assert decode_patch(PatchType.MERGE, b'{"a":null}', 200) == Patch(PatchType.MERGE, {"a": None})
    assert decode_patch(PatchType.JSON, b"[]", 200) == Patch(PatchType.JSON, [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("- " * 100_000, "nested too deeply"),
        ("[" + "1," * 100_000 + "1]", "too many values"),
        ("%TAG !a! tag:x\n" * 100_000 + "--- {}", "directives"),
        ("a: b\n%TAG !a! tag:x\n", "directives"),
    ],
)
def test_yaml_that_would_keep_the_parser_busy(text: str, words: str) -> None:
    with pytest.raises(YamlError, match=words):
        from_yaml(text.encode())


@pytest.mark.parametrize(
    "text", ["1:30", "1" + ":30" * 100_000, "1" + ":30" * 1000 + ".5"], ids=["short", "long", "float"]
)
def test_numbers_to_the_base_of_sixty_are_text(text: str) -> None:
    """One of a megabyte kept the server busy for a minute."""
    assert msgspec.json.decode(from_yaml(b"a: " + text.encode())) == {"a": text}
    with pytest.raises(YamlError, match="tags"):
        from_yaml(b"a: !!int " + text.encode())


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"[]," * 60_000 + b"1]",
        b"[" + b"1," * 60_000 + b"1]",
        b"{" + b'"a":1,' * 60_000 + b'"a":1}',
        b"[" + b'"",' * 500_000 + b"1]",
        b"[" + b'"\\\\",' * 60_000 + b"1]",
        b"[" + b"1," * 60_000 + b'"' + b'\\"' * 60_000,
    ],
    ids=["lists", "numbers", "the same field", "texts", "texts that end in a backslash", "a text without an end"],
)
def test_a_body_of_too_many_values_is_not_even_decoded(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    monkeypatch.setattr(body, "decode_json", lambda text: decoded.append(len(text)))
    with pytest.raises(RequestTooLarge, match="limit is 50000 values"):
        decode(text, 200)
    assert not decoded


def test_text_that_looks_like_many_values_is_one() -> None:
    for text in ("{[," * 100_000, '",' * 100_000, '\\",[' * 100_000):
        assert decode(msgspec.json.encode([text]), 200) == [text]
    assert len(decode(msgspec.json.encode(list(range(49_000))), 200)) == 49_000


def test_a_long_malformed_text_is_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []
    monkeypatch.setattr(body, "complaint", lambda text: walked.append(len(text)) or "words")
    for text in (b"[1,x]", b'["' + b"y" * 100_000 + b'",x]'):
        with pytest.raises(Malformed):
            decode(text, 200)
    assert walked == [5]


def test_warnings_stay_short_and_few() -> None:
    """Clients refuse answers with long headers, and Python's refuses more than a hundred."""
    assert len(warnings(("one", "two"))) == 2
    many = warnings(tuple(f'unknown field "x{number}"' for number in range(100_000)))
    assert 10 < len(many) <= 64
    long = warnings(tuple("y" * 1000 for _ in range(100)))
    assert sum(len(value) for _, value in long) < 5000


@pytest.mark.parametrize("text", ["1e308", "1.7e-310", "5e-324", "2.2250738585072011e-308", "0.1", "-1.5E+3", "1e-400"])
def test_numbers_at_the_ends_of_the_range_are_read_by_pythons_own_parser(text: str) -> None:
    """msgspec takes ten microseconds for each of them."""
    found: list[Any] = []
    assert calls_of(lambda: found.append(decode(f"[{','.join([text] * 1000)}]".encode(), 10))) >= 1000
    assert found == [[json.loads(text)] * 1000]


@pytest.mark.parametrize("text", ["1e309", "-1e400", "1.7976931348623159e308"])
def test_numbers_beyond_the_range_are_refused(text: str) -> None:
    with pytest.raises(Malformed, match="out of range"):
        decode(f'{{"a":{text}}}'.encode(), 10)
