"""Log files: rotation, tails, and readers that fall behind."""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sandpool.node.pods.logs import files
from sandpool.node.pods.logs.files import LogWriter
from sandpool.node.pods.logs.reading import BLOCK, Position, Text, advance, beginning, last_lines
from sandpool.node.pods.logs.record import LONGEST, encode, stamp, unfinished

START = datetime(2026, 1, 1, tzinfo=UTC)
NOON = stamp(START)


def all_of(folder: Path, run: int, place: Position | None = None, text: Text | None = None) -> bytes:
    place, text, made = place or beginning(folder, run), text or Text(), b""
    while True:
        block, place = advance(folder, run, place)
        if not block:
            return made
        made += text.of(block)


def test_files_are_rotated_and_the_oldest_removed(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, 0, size=100, files=3)
    for number in range(20):
        writer.write(NOON, 1, b"line %d\n" % number)
    writer.finish(NOON)
    assert len(files.numbers(tmp_path, 0)) == 3
    assert all(path.stat().st_size < 200 for path in tmp_path.iterdir())
    lines = all_of(tmp_path, 0).splitlines()
    assert lines[-1] == b"line 19"
    assert lines == [b"line %d" % number for number in range(20 - len(lines), 20)]
    assert 4 < len(lines) < 20


def test_a_reader_goes_on_across_rotations_and_past_what_is_gone(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, 0, size=100, files=2)
    writer.write(NOON, 1, b"first\n")
    block, place = advance(tmp_path, 0, beginning(tmp_path, 0))
    assert Text().of(block) == b"first\n"
    assert advance(tmp_path, 0, place) == (b"", place)
    for number in range(50):
        writer.write(NOON, 1, b"line %d\n" % number)
    lines = all_of(tmp_path, 0, place).splitlines()
    assert lines[-1] == b"line 49"
    assert lines == [b"line %d" % number for number in range(50 - len(lines), 50)]
    writer.finish(NOON)


def test_a_reader_may_come_before_the_first_file(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    place = beginning(folder, 0)
    assert advance(folder, 0, place) == (b"", place)
    writer = LogWriter(folder, 0, 100, 2)
    writer.write(NOON, 1, b"x\n")
    assert all_of(folder, 0, place) == b"x\n"
    writer.finish(NOON)


def test_runs_are_kept_apart_and_old_ones_removed(tmp_path: Path) -> None:
    for run in range(4):
        writer = LogWriter(tmp_path, run, 1000, 2)
        writer.write(NOON, 1, b"run %d\n" % run)
        writer.finish(NOON)
    assert files.runs(tmp_path) == [0, 1, 2, 3]
    files.forget_runs_before(tmp_path, 2)
    assert files.runs(tmp_path) == [2, 3]
    assert all_of(tmp_path, 2) == b"run 2\n"


def test_streams_keep_their_unfinished_lines_apart(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, 0, 1000, 2)
    for stream, data in ((1, b"o"), (2, b"e"), (1, b"ut\n"), (2, b"rr\n"), (1, b"rest")):
        writer.write(NOON, stream, data)
    writer.finish(NOON)
    assert all_of(tmp_path, 0) == b"out\nerr\nrest"


def test_a_full_disk_costs_lines_and_nothing_else(tmp_path: Path) -> None:
    """/dev/full takes nothing; what comes later, when there is room again, is written."""
    writer = LogWriter(tmp_path, 0, 1 << 20, 2)
    writer.write(NOON, 1, b"before\n")
    good, writer.file = writer.file, os.open("/dev/full", os.O_WRONLY)
    writer.write(NOON, 1, b"lost\n")
    os.close(writer.file)
    writer.file = good
    writer.write(NOON, 1, b"after\n")
    writer.finish(NOON)
    assert writer.lost > 0
    assert all_of(tmp_path, 0) == b"before\nafter\n"


def test_a_record_that_a_crash_cut_is_passed_over(tmp_path: Path) -> None:
    whole, _ = encode(NOON, 1, b"one\ntwo\n")
    files.path_of(tmp_path, 0, 1).write_bytes(whole[:-3])
    assert all_of(tmp_path, 0) == b"one\n"
    files.path_of(tmp_path, 0, 2).write_bytes(whole)
    assert all_of(tmp_path, 0) == b"one\none\ntwo\n"
    files.path_of(tmp_path, 0, 3).write_bytes(b"garbage" * BLOCK)
    assert all_of(tmp_path, 0) == b"one\none\ntwo\n"


def test_since_skips_whole_files(tmp_path: Path) -> None:
    for number in range(1, 5):
        block, _ = encode(stamp(START + timedelta(hours=number)), 1, b"hour %d\n" % number)
        files.path_of(tmp_path, 0, number).write_bytes(block)
    since = stamp(START + timedelta(hours=2, minutes=30))
    assert beginning(tmp_path, 0, since) == Position(2, 0)
    assert all_of(tmp_path, 0, beginning(tmp_path, 0, since), Text(since)) == b"hour 3\nhour 4\n"
    assert beginning(tmp_path, 0, NOON) == Position(1, 0)


lines = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")) | st.just(b"x" * (LONGEST * 2 + 5))


@given(st.lists(lines, max_size=12), st.booleans(), st.integers(0, 14), st.integers(1, 3))
def test_the_last_lines(written: list[bytes], open_end: bool, tail: int, per: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(0, len(written), per):
            block, _ = encode(NOON, 1, b"".join(line + b"\n" for line in written[number : number + per]))
            files.path_of(folder, 0, number + 1).write_bytes(block)
        expected = [line + b"\n" for line in written]
        if open_end:
            with open(files.path_of(folder, 0, len(written) + 1), "ab") as file:
                file.write(unfinished(NOON, 1, b"end"))
            expected.append(b"end")
        wanted = b"".join(expected[max(0, len(expected) - tail) :])
        assert all_of(folder, 0, last_lines(folder, 0, tail)) == wanted
