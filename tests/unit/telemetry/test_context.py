from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.telemetry.trace import LONGEST, Context, of_annotation, of_traceparent, of_uid

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PLACE = Context(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'{{"traceparent": "{PARENT}"}}', PLACE),
        (f'{{"traceparent": "{PARENT[:-1]}0", "tracestate": "a=1,b=2"}}', PLACE._replace(flags=0, state="a=1,b=2")),
        (f'{{"traceparent": "cc{PARENT[2:]}-what-the-future-adds"}}', PLACE),
        (f'{{"traceparent": "{PARENT}", "tracestate": 7}}', PLACE),
        (f'{{"traceparent": "{PARENT}", "tracestate": "{"x" * 600}"}}', PLACE),
    ],
)
def test_what_an_annotation_says(text: str, expected: Context) -> None:
    assert of_annotation(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        None, "", "{", "[]", "7", '"x"', "{}", '{"traceparent": null}', '{"traceparent": ""}', '{"traceparent": 7}', PARENT,
        f'{{"traceparent": "ff{PARENT[2:]}"}}',
        f'{{"traceparent": "{PARENT}-more"}}',  # version 00 has no more
        f'{{"traceparent": "{PARENT.upper()}"}}',
        f'{{"traceparent": "00-{"0" * 32}-b7ad6b7169203331-01"}}',
        f'{{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-{"0" * 16}-01"}}',
        f'{{"traceparent": "{PARENT}", "x": "{"y" * LONGEST}"}}',
        "\ud800",
    ],
)  # fmt: skip
def test_what_is_as_good_as_absent(text: str | None) -> None:
    assert of_annotation(text) is None


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_whatever_a_tenant_writes_is_survived(text: str) -> None:
    assert of_annotation(text) is None
    assert of_annotation(f'{{"traceparent": "{text}"}}') is None or "-" in text


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.sampled_from([0, 1]), st.sampled_from(["", "a=1"]))
def test_what_is_written_is_read_again(trace: int, span: int, flags: int, state: str) -> None:
    context = Context(trace, span, flags, state)
    assert of_annotation(context.annotation()) == context
    assert of_traceparent(context.traceparent) == context._replace(state="")


def test_a_uid_always_leads_to_the_same_trace() -> None:
    uid = "7f0c2a52-3d7c-4d0e-8a3d-0d4f0f6f7b11"
    assert of_uid(uid) == of_uid(uid)
    assert of_uid(uid).traceparent == "00-" + of_uid(uid).traceparent[3:-3] + "-01"
    assert len({of_uid(str(number)).trace_id for number in range(1000)}) == 1000
