from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.controlplane.apiserver.discovery import Discovery
from sandpool.controlplane.apiserver.negotiate import Form, form_of
from sandpool.controlplane.apiserver.response import accepts_gzip, warnings
from sandpool.controlplane.apiserver.routes import Routes
from sandpool.kube.errors import NotAcceptable
from support.api.opcodes import opcodes

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, Form.OBJECT),
        ("application/json", Form.OBJECT),
        ("*/*", Form.OBJECT),
        ("application/*;q=0.5", Form.OBJECT),
        (f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Form.TABLE),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Form.OBJECT),
        ("application/vnd.kubernetes.protobuf,application/json", Form.OBJECT),
        (f"application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,{TABLE}", Form.TABLE),
        (PARTIAL, Form.PARTIAL),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Form.PARTIAL_LIST),
        (f"{TABLE};q=0.1,application/json;q=0.9", Form.OBJECT),
        ("text/html, application/xhtml+xml, */*;q=0.8", Form.OBJECT),
    ],
)
def test_form(accept: str | None, form: Form) -> None:
    assert form_of(accept.encode() if accept is not None else None) is form


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "application/vnd.kubernetes.protobuf",
        "application/json;q=0",
        "application/json;as=Table;g=meta.k8s.io;v=v9",
        "application/json;as=Banana;g=meta.k8s.io;v=v1",
    ],
)
def test_nothing_that_can_be_served(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="only the following media types are accepted"):
        form_of(accept.encode())


@given(st.binary(max_size=80))
def test_any_header_gets_an_answer(accept: bytes) -> None:
    try:
        assert form_of(accept) in Form
    except NotAcceptable:
        pass


def test_discovery_takes_the_first_form_that_it_has() -> None:
    discovery = Discovery(Routes(), "127.0.0.1:1")
    kubectl = (
        b"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
        b"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    )
    aggregated = discovery.page("/apis", kubectl)
    plain = discovery.page("/apis", b"application/json")
    assert aggregated is not None
    assert plain is not None
    assert b'"apidiscovery.k8s.io/v2"' in aggregated.body
    assert b"APIGroupList" in plain.body
    older = discovery.page("/apis", kubectl.partition(b",")[2])
    assert older is not None
    assert b'"apidiscovery.k8s.io/v2beta1"' in older.body
    listed = discovery.page("/apis/coordination.k8s.io/v1", kubectl)
    assert listed is not None
    assert b"APIResourceList" in listed.body
    assert discovery.page("/apis/nosuch", kubectl) is None
    with pytest.raises(NotAcceptable):
        discovery.page("/apis", b"text/html")


def test_gzip() -> None:
    answers = [
        accepts_gzip(header) for header in (None, b"", b"gzip", b"deflate, GZIP;q=1.0", b"gzip;q=0", b"identity")
    ]
    assert answers == [False, False, True, True, False, False]


def test_warnings_cannot_break_out_of_their_header() -> None:
    [(name, value)] = warnings(('unknown field "spec.a\r\nSet-Cookie: x\\"',))
    assert name == b"warning"
    assert value == b'299 - "unknown field \\"spec.a  Set-Cookie: x\\\\\\""'


@pytest.mark.parametrize("accept", [b"x," * 30_000 + b"*/*", b"application/json" + b";x=y" * 15_000])
def test_a_long_header_is_not_read_to_its_end(accept: bytes) -> None:
    """Each entry costs as much as a short request: thirty thousand took a tenth of a second."""

    def ask() -> None:
        with contextlib.suppress(NotAcceptable):
            form_of(accept)

    assert opcodes(ask) < 10_000
    assert opcodes(lambda: accepts_gzip(accept)) < 2_000
