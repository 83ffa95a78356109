"""Paths stay below the root: compared with what realpath says, and while somebody swaps folders for symlinks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandpool.boxd.files.root import Root
from sandpool.wire.codes import Code, Refused

LINKS = {
    "up": "..", "out": "/etc", "far": "../../../../etc", "in": "a/b", "whole": "{root}/a", "self": "self", "dot": ".",
    "a/back": "../a", "a/b/top": "../../..", "loop1": "loop2", "loop2": "loop1",
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    top = tmp_path / "root"
    (top / "a/b").mkdir(parents=True)
    (top / "a/b/file").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    for name, target in LINKS.items():
        os.symlink(target.format(root=top), top / name)
    found = Root(str(top))
    yield found
    found.close()


NAMES = st.sampled_from([*LINKS, "a", "b", "file", "..", ".", "", "missing", "secret", "back", "top"])


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(NAMES, max_size=7), st.booleans())
def test_a_path_leads_where_the_kernel_would_go_or_nowhere(root: Root, names: list[str], absolute: bool) -> None:
    path = ("/" if absolute else "") + "/".join(names)
    try:
        with root.opened(path, os.O_PATH) as fd:
            found = os.readlink(f"/proc/self/fd/{fd}")
    except Refused:
        return  # the tests below say what must be refused, and what must not
    assert found == root.path or found.startswith(root.path + "/")
    assert os.path.realpath(os.path.join(root.path, path.lstrip("/"))) == found


@pytest.mark.parametrize(
    "path", ["out/passwd", "far/passwd", "up/secret", "../secret", "a/b/top/secret", "a/../../secret"]
)
def test_what_leads_out_is_refused(root: Root, path: str) -> None:
    with pytest.raises(Refused) as refused, root.opened(path, os.O_RDONLY):
        pass
    assert refused.value.code is Code.DENIED


def test_a_path_may_begin_with_the_root_itself(root: Root) -> None:
    with root.opened(f"{root.path}/a/b/file", os.O_RDONLY) as fd:
        assert os.read(fd, 10) == b"inside"


def test_a_place_that_is_reached_by_going_up_is_not_the_root(root: Root) -> None:
    with root.place("a/b/..") as place:
        assert (place.is_root, place.name) == (False, "a")
    with root.place("a/..") as place:
        assert place.is_root


def test_nothing_is_read_outside_while_folders_are_swapped_for_symlinks(root: Root, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("outside")
    game, other, link = Path(root.path, "game"), Path(root.path, "other"), Path(root.path, "link")
    game.mkdir()
    (game / "file").write_text("inside")
    os.symlink(outside, link)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            os.rename(game, other)
            os.rename(link, game)
            os.rename(game, link)
            os.rename(other, game)

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[bytes] = set()
    try:
        for _ in range(5_000):
            try:
                with root.opened("game/file", os.O_RDONLY) as fd:
                    seen.add(os.read(fd, 10))
            except Refused:
                pass
    finally:
        over.set()
        thread.join()
    assert seen <= {b"inside"}
    assert seen, "the game was never won: the test says nothing"


def test_no_file_stays_open(root: Root) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in ("a/b/file", "in/file", "loop1", "out", "missing/x", "a/b/file/x", "whole/b", "dot/dot/a"):
        try:
            with root.opened(path, os.O_PATH):
                pass
        except Refused:
            pass
    assert len(os.listdir("/proc/self/fd")) == before
