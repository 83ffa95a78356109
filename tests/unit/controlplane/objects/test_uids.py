"""New uids: of version 4, each told once, many for one question to the kernel."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from sandpool.controlplane.objects.uids import NewUids, uid_of


@given(st.binary(min_size=16, max_size=16))
def test_version_and_variant_and_all_the_rest_is_random(random: bytes) -> None:
    text = uid_of(random)
    read = uuid.UUID(text)
    assert (read.version, read.variant, str(read)) == (4, uuid.RFC_4122, text)
    given, told = random.hex(), read.hex
    assert [told[:12], told[13:16], told[17:]] == [given[:12], given[13:16], given[17:]]


def test_every_variant_digit_comes_as_often() -> None:
    digits = [uid_of(bytes([0] * 8 + [byte] + [0] * 7))[19] for byte in range(256)]
    assert {digit: digits.count(digit) for digit in "89ab"} == dict.fromkeys("89ab", 64)


def test_no_two_are_alike() -> None:
    new = NewUids()
    made = [new() for _ in range(10_000)]
    assert len(set(made)) == 10_000
    assert {uuid.UUID(text).version for text in made} == {4}
    assert not set(made) & {other() for other in (NewUids() for _ in range(1_000))}


def test_the_kernel_is_asked_when_the_stock_is_used_up() -> None:
    asked: list[int] = []

    def random(size: int) -> bytes:
        asked.append(size)
        return bytes((len(asked) + place // 16) % 256 for place in range(size))

    new = NewUids(random)
    assert asked == [], "not before somebody wants one"
    first = new()
    (size,) = asked
    assert size % 16 == 0
    stock = [first, *(new() for _ in range(size // 16 - 1))]
    assert asked == [size]
    assert len(set(stock)) == len(stock), "no byte is used twice"
    assert new() == stock[1]
    assert asked == [size, size]
