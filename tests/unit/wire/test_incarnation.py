"""Which run of boxd it is, as text."""

from __future__ import annotations

import pytest

from sandpool.wire.incarnation import UNKNOWN, incarnation, sendable, started


def test_it_tells_when_it_began_and_goes_into_a_header() -> None:
    text = incarnation(1794968667.6204, bytes(8))
    assert text == "1794968667.620-0000000000000000"
    assert started(text) == 1794968667.620
    assert sendable(text)


@pytest.mark.parametrize("text", ["", "x", "nan-00", "inf-00", "1e9-00", "1.000", "1.0000-x", "-1.000-x"])
def test_one_of_another_form_tells_no_time(text: str) -> None:
    assert started(text) == UNKNOWN


@pytest.mark.parametrize("text", ["", "a b", "a\r\nb", "\u00e9", "x" * 101, "a,b"])
def test_what_no_header_carries(text: str) -> None:
    assert not sendable(text)
