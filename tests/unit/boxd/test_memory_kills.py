"""Which process the kernel ended for want of memory, by a count that says only that it happened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandpool.boxd.processes.memory import MemoryKills, counted

V1, V2 = (
    "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n",
    "low 0\nhigh 0\nmax 9\noom 7\noom_kill {}\noom_group_kill 5\n",
)


class Counts:
    def __init__(self, path: Path, form: str) -> None:
        self._path = path
        self._form = form
        self.says(0)
        self.file = os.open(path, os.O_RDONLY)

    def says(self, number: int) -> None:
        self._path.write_text(self._form.format(number))


@pytest.fixture(params=[V1, V2], ids=["version 1", "version 2"])
def counts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Counts]:
    found = Counts(tmp_path / "counts", request.param)
    yield found
    os.close(found.file)


def test_only_what_happened_since_the_start_counts(counts: Counts) -> None:
    counts.says(3)
    kills = MemoryKills(counts.file)
    before = kills.mark()
    assert not kills.ended(before)
    counts.says(4)
    assert kills.ended(before)


def test_each_is_of_one_process(counts: Counts) -> None:
    kills = MemoryKills(counts.file)
    first, second, third = kills.mark(), kills.mark(), kills.mark()
    counts.says(2)
    assert [kills.ended(one) for one in (first, second, third)] == [True, True, False]
    later = kills.mark()
    assert not kills.ended(later)
    counts.says(3)
    assert kills.ended(later)


def test_without_a_count_nothing_is_claimed(tmp_path: Path) -> None:
    assert not MemoryKills().ended(MemoryKills().mark())
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)  # cannot be read as a file
    try:
        assert MemoryKills(folder).mark() == b""
    finally:
        os.close(folder)


@pytest.mark.parametrize("text", ["", "oom 3", "oom_kill x", "oom_kill", "oom_kill_disable 7"])
def test_what_is_no_count(text: str) -> None:
    assert counted(text.encode()) == 0
