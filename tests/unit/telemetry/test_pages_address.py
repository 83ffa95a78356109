from __future__ import annotations

import pytest

from sandpool.telemetry.pages import Address, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", Address("", 8080)),
        ("8080", Address("", 8080)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::1]:8080", Address("::1", 8080)),
        ("0", None),
    ],
)
def test_addresses(text: str, address: Address | None) -> None:
    assert parse_address(text) == address


def test_a_missing_host_is_what_the_caller_means() -> None:
    assert parse_address(":6060", host="127.0.0.1") == Address("127.0.0.1", 6060)
    assert parse_address("0.0.0.0:6060", host="127.0.0.1") == Address("0.0.0.0", 6060)


@pytest.mark.parametrize("text", ["", "nonsense", ":", "host:", ":70000", "::1:80", ":-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        parse_address(text)
