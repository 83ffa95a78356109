from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.controlplane.apiserver.protobuf_body import MAGIC, MOST_FIELDS, Budget, fields, from_protobuf
from sandpool.wire.protobuf import ProtobufError, signed, varint


def number(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return number(field << 3 | 2) + number(len(content)) + content


def integer(field: int, value: int) -> bytes:
    return number(field << 3) + number(value)


def envelope(version: str, kind: str, raw: bytes) -> bytes:
    return MAGIC + text(1, text(1, version) + text(2, kind)) + text(2, raw)


def test_what_kubectl_sends_for_a_namespace() -> None:
    """As recorded: Go writes empty text and an empty time where JSON would leave them out."""
    recorded = base64.b64decode("azhzAAoPCgJ2MRIJTmFtZXNwYWNlEhoKEgoCenoSABoAIgAqADIAOABCABIAGgIKABoAIgA=")
    assert from_protobuf(recorded) == {
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "zz"}, "spec": {}, "status": {},
    }  # fmt: skip


def decoded(version: str, kind: str, raw: bytes) -> dict[str, Any]:
    return from_protobuf(envelope(version, kind, raw))


def test_maps_bytes_and_pointers() -> None:
    raw = text(2, text(1, "k") + text(2, b"\x00\xff")) + text(2, text(1, "empty")) + text(3, "Opaque") + integer(5, 0)
    secret = decoded("v1", "Secret", raw)
    assert secret["data"] == {"k": "AP8=", "empty": ""}
    assert (secret["type"], secret["immutable"]) == ("Opaque", False)  # a pointer to false is not nothing


def test_quantities_ports_times_and_inlined_fields() -> None:
    limits = text(1, text(1, "cpu") + text(2, text(1, "500m")))
    probe = text(1, text(2, text(1, "/") + text(2, integer(1, 1) + text(3, "http")))) + integer(2, 5)
    container = text(1, "c") + text(2, "") + text(8, limits) + text(10, probe) + integer(16, 0)
    pod = decoded("v1", "Pod", text(1, text(1, "p") + text(9, integer(1, 1_700_000_000))) + text(2, text(2, container)))
    assert pod["metadata"] == {"name": "p", "deletionTimestamp": "2023-11-14T22:13:20Z"}
    assert pod["spec"]["containers"] == [
        {
            "name": "c",
            "resources": {"limits": {"cpu": "500m"}},
            "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "initialDelaySeconds": 5},
        }
    ]


def test_negative_and_repeated_numbers() -> None:
    plain = integer(4, 5) + integer(4, -1)
    packed = text(4, number(5) + number(-1))
    for groups in (plain, packed):
        pod = decoded("v1", "Pod", text(2, text(14, groups)))
        assert pod["spec"]["securityContext"]["supplementalGroups"] == [5, -1]


def test_times_with_microseconds() -> None:
    lease = decoded("coordination.k8s.io/v1", "Lease", text(2, text(4, integer(1, 1) + integer(2, 5000))))
    assert lease["spec"] == {"renewTime": "1970-01-01T00:00:01.000005Z"}


def test_reviews_and_options() -> None:
    attributes = text(1, "default") + text(2, "get") + text(5, "pods")
    review = decoded("authorization.k8s.io/v1", "SelfSubjectAccessReview", text(2, text(1, attributes)))
    assert review["spec"] == {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}
    options = decoded("v1", "DeleteOptions", integer(1, 0) + text(2, text(1, "u")) + text(4, "Background"))
    assert {key: options[key] for key in ("gracePeriodSeconds", "preconditions", "propagationPolicy")} == {
        "gracePeriodSeconds": 0, "preconditions": {"uid": "u"}, "propagationPolicy": "Background",
    }  # fmt: skip


def test_unknown_fields_are_skipped() -> None:
    raw = integer(999, 7) + text(998, "x") + number(997 << 3 | 1) + b"12345678" + number(996 << 3 | 5) + b"1234"
    assert decoded("v1", "ConfigMap", raw) == {"apiVersion": "v1", "kind": "ConfigMap"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        MAGIC,
        envelope("v1", "Deployment", b""),
        envelope("agents.x-k8s.io/v1beta1", "Sandbox", b""),
        envelope("v1", "ConfigMap", b"\x0a\xff"),
        envelope("v1", "ConfigMap", integer(1, 5)),
        envelope("v1", "ConfigMap", b"\x03"),
        envelope("v1", "ConfigMap", b"\xff" * 11),
        envelope("v1", "ConfigMap", b"\x00"),
        MAGIC + text(1, text(1, "v1") + text(2, "ConfigMap")) + text(3, "gzip"),
    ],
)
def test_what_is_no_such_message(body: bytes) -> None:
    with pytest.raises(ProtobufError):
        from_protobuf(body)


@given(st.binary(max_size=80))
def test_any_bytes_get_an_answer(raw: bytes) -> None:
    for kind in ("Pod", "ConfigMap", "Secret"):
        try:
            assert decoded("v1", kind, raw)["kind"] == kind
        except (ProtobufError, UnicodeDecodeError, ValueError):
            pass


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers(value: int) -> None:
    raw, end = varint(number(value), 0)
    assert (signed(raw), end) == (value, len(number(value)))


def test_fields() -> None:
    assert list(fields(integer(1, 5) + text(2, "x"), Budget(2))) == [(1, 5), (2, b"x")]


def test_too_many_fields_are_not_read_wherever_they_are() -> None:
    """Of three megabytes, two bytes each, they took five seconds."""
    tiny = text(1, "")
    nested = text(2, b"".join(text(1, tiny * 1000) for _ in range(100)))
    for raw in (integer(15, 0) * 60_000, text(2, tiny * 60_000), nested):
        with pytest.raises(ProtobufError, match="too many fields"):
            from_protobuf(envelope("v1", "Pod", raw))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"[" + b"{}," * 100_000 + b"{}]", id="many values"),
        pytest.param(b"[" * 100_000, id="deep"),
    ],
)
def test_json_within_it_is_not_read(content: bytes) -> None:
    """Neither the number nor the depth of its values would be bounded, and managed fields are not stored."""
    metadata = text(1, "name") + text(17, text(1, "kubectl") + text(7, text(1, content)))
    assert decoded("v1", "ConfigMap", text(1, metadata))["metadata"]["managedFields"] == [{"manager": "kubectl"}]


def test_as_many_fields_as_a_large_object_has_are_read() -> None:
    """A data entry is three fields."""
    most = (MOST_FIELDS - 5) // 3
    raw = b"".join(text(2, text(1, f"k{each}") + text(2, "v")) for each in range(most))
    assert len(decoded("v1", "ConfigMap", raw)["data"]) == most > 6_000
    with pytest.raises(ProtobufError, match="send JSON"):
        decoded("v1", "ConfigMap", raw + 3 * integer(15, 0))
