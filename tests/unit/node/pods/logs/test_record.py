"""The text format of logs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from sandpool.node.pods.logs.reading import Text
from sandpool.node.pods.logs.record import HEAD, LONGEST, TIME, decode, encode, records, stamp, unfinished

NOON = stamp(datetime(2026, 1, 1, 12, tzinfo=UTC))


def test_a_time_has_always_the_same_width_and_order() -> None:
    moments = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=n) for n in (0, 1, 999_999, 10**12)]
    stamps = [stamp(moment) for moment in moments]
    assert {len(one) for one in stamps} == {TIME}
    assert stamps == sorted(stamps)
    assert stamp(datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == stamps[0]


def test_records_look_like_those_of_other_runtimes() -> None:
    block, rest = encode(NOON, 2, b"one\n\ntwo")
    assert block == b"2026-01-01T12:00:00.000000000Z stderr F one\n2026-01-01T12:00:00.000000000Z stderr F \n"
    assert rest == b"two"
    assert unfinished(NOON, 1, rest) == b"2026-01-01T12:00:00.000000000Z stdout P two\n"
    assert encode(NOON, 1, b"") == (b"", b"")


def test_a_long_line_is_written_in_parts() -> None:
    block, rest = encode(NOON, 1, b"x" * (2 * LONGEST + 1) + b"\n" + b"y" * LONGEST + b"\n" + b"z" * (LONGEST + 1))
    found = list(records(block))
    assert [(record.full, len(record.text)) for record in found] == [
        (False, LONGEST),
        (False, LONGEST),
        (True, 1),
        (True, LONGEST),
        (False, LONGEST),
    ]
    assert rest == b"z"


@given(st.lists(st.binary(max_size=200) | st.just(b"\n") | st.just(b"x" * (LONGEST - 1)), max_size=30))
def test_what_was_written_is_what_is_read(chunks: list[bytes]) -> None:
    text, rest, made = Text(), b"", b""
    for chunk in chunks:
        block, rest = encode(NOON, 1, rest + chunk)
        assert len(rest) <= LONGEST
        assert all(len(line) <= HEAD + LONGEST for line in block.split(b"\n"))
        made += text.of(block)
    if rest:
        made += text.of(unfinished(NOON, 1, rest))
    assert made == b"".join(chunks)


@given(st.binary(max_size=100))
def test_what_is_no_record_is_passed_over(line: bytes) -> None:
    record = decode(line)
    assert record is None or record.text == line[HEAD:]


def test_times_stand_before_lines_and_not_before_their_parts() -> None:
    block, _ = encode(NOON, 1, b"x" * (LONGEST + 1) + b"\nshort\n")
    text = Text(timestamps=True).of(block)
    assert text == NOON + b" " + b"x" * (LONGEST + 1) + b"\n" + NOON + b" short\n"


def test_a_limit_counts_over_several_blocks() -> None:
    text = Text(left=5)
    block, _ = encode(NOON, 1, b"abc\n")
    assert text.of(block) + text.of(block) + text.of(block) == b"abc\na"
    assert text.left == 0
