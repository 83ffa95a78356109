"""Which upgrades to WebSocket are accepted. The frames have a file of their own."""

from __future__ import annotations

import pytest

from sandpool.wire.websocket import accept, accept_key

GOOD = {"upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}


def test_the_example_of_the_standard() -> None:
    assert accept_key(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    accepted = accept(GOOD)
    assert isinstance(accepted, dict)
    assert accepted["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize(
    "change",
    [{"upgrade": "h2c"}, {"sec-websocket-version": "8"}, {"sec-websocket-key": "short"}, {"sec-websocket-key": "*"}],
)
def test_an_upgrade_that_is_none_says_why(change: dict[str, str]) -> None:
    assert isinstance(accept(GOOD | change), str)
