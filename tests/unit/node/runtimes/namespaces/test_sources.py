"""What a container mounts is opened where it is mounted, and no name that a sandbox can change leads out of its volume."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandpool.node.runtimes.contract import Mount
from sandpool.node.runtimes.namespaces.forked import kernel, mount_sources
from sandpool.node.runtimes.namespaces.forked.frames import Refused
from sandpool.node.runtimes.namespaces.spawn_requests import mount_request


@contextmanager
def opened(source: Path, within: Path | None = None, sub: str = "", *, make: bool = True) -> Iterator[Path]:
    """The real path of what is opened."""
    file = mount_sources.open_source(mount_request(Mount("/v", source, within=within, sub_path=sub, make=make), ""))
    try:
        yield Path(os.readlink(f"/proc/self/fd/{file}"))
    finally:
        os.close(file)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    (tmp_path / "volume" / "a").mkdir(parents=True)
    (tmp_path / "outside").mkdir(mode=0o700)
    (tmp_path / "outside" / "secret").write_text("secret")
    return tmp_path / "volume"


def untouched(volume: Path) -> None:
    outside = volume.parent / "outside"
    assert sorted(path.name for path in volume.parent.iterdir()) == ["outside", "volume"]
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert outside.stat().st_mode & 0o777 == 0o700


def test_a_missing_path_is_made_with_its_mode(volume: Path) -> None:
    old = os.umask(0o077)
    try:
        with opened(volume, sub="b/./c//d") as found:
            assert found == volume / "b" / "c" / "d"
            assert found.stat().st_mode & 0o777 == 0o777
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(old)
    with opened(volume, sub="b/c") as found:
        assert found == volume / "b" / "c"


def test_nothing_is_made_in_what_is_read_only(volume: Path) -> None:
    with pytest.raises(Refused, match="read-only"), opened(volume, sub="b", make=False):
        pass
    assert [path.name for path in volume.iterdir()] == ["a"]


def test_links_may_lead_around_inside(volume: Path) -> None:
    (volume / "a" / "file").write_text("x")
    (volume / "file").symlink_to("a/../a/file")
    with opened(volume, sub="file") as found:
        assert found == volume / "a" / "file"
    (volume / "folder").symlink_to("a")
    with opened(volume, sub="folder/new") as found:
        assert found == volume / "a" / "new"


@pytest.mark.parametrize(
    "target", ["/etc", "..", "../..", "/", "a/../../outside", "../outside", "/proc/self/root", "a/.."]
)
@pytest.mark.parametrize("sub", ["link", "link/passwd", "link/made-by-us", "link/secret"])
def test_links_never_lead_out(volume: Path, target: str, sub: str) -> None:
    (volume / "link").symlink_to(target)
    if target == "a/..":
        with opened(volume, sub=sub) as found:
            assert found.is_relative_to(volume)
    else:
        with pytest.raises(Refused, match="leads out of the volume"), opened(volume, sub=sub):
            pass
    untouched(volume)


@pytest.mark.parametrize(("name", "target"), [("one", "two"), ("one", "nowhere"), ("one", "nowhere/else")])
def test_links_that_lead_nowhere_are_refused(volume: Path, name: str, target: str) -> None:
    (volume / name).symlink_to(target)
    (volume / "two").symlink_to("one")
    with pytest.raises(Refused, match=name), opened(volume, sub=name):
        pass
    with pytest.raises(Refused), opened(volume, sub=f"{name}/below"):
        pass
    assert {path.name for path in volume.iterdir()} == {"a", name, "two"}


def test_a_file_is_no_folder(volume: Path) -> None:
    (volume / "file").write_text("x")
    for sub in ("file/below", "file/below/more"):
        with pytest.raises(Refused, match="subPath"), opened(volume, sub=sub):
            pass
    with pytest.raises(Refused, match="subPath"), opened(volume / "file", sub="below"):
        pass


def test_the_volume_itself_is_no_link(volume: Path) -> None:
    """Neither one in its place, nor one on the way to it below what nobody can change."""
    (volume / "link").symlink_to(volume.parent / "outside")
    (volume / "a" / "deep").mkdir()
    for source, within in (
        (volume / "link", None),
        (volume / "link", volume),
        (volume / "link" / "secret", volume),
        (volume / "link", Path("/")),
    ):
        for sub in ("", "secret", "new"):
            with pytest.raises(Refused, match="symbolic link"), opened(source, within, sub):
                pass
    with opened(volume / "a" / "deep", Path("/")) as found:
        assert found == volume / "a" / "deep"
    untouched(volume)


def test_a_layer_is_no_link(volume: Path) -> None:
    (volume / "link").symlink_to(volume.parent / "outside")
    for path in (volume / "link", volume / "link" / "secret"):
        with pytest.raises(Refused, match="symbolic link"):
            mount_sources.open_layer(str(path))
    os.close(mount_sources.open_layer(str(volume / "a")))


class Exchange:
    """A sandbox that is always fast enough: before and after every step of ours it swaps a folder for a link that leads out.

    It stands in for the kernel's calls in this process only, so that each point of time is tried, and none by luck."""

    def __init__(self, volume: Path, name: str) -> None:
        self.volume, self.name, self.link = volume, volume / name, volume / f".{name}"
        self.moments = 0
        self.at = 0

    def __call__(self) -> None:
        self.moments += 1
        if self.moments == self.at and os.path.lexists(self.name):
            self.name.rename(self.volume / ".taken")
            self.link.rename(self.name)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("sub", ["s", "s/t", "s/t/u"])
def test_an_exchange_at_any_moment_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sub: str, there: bool
) -> None:
    outside = tmp_path / "outside"
    (outside / "t").mkdir(parents=True, mode=0o700)
    outside.chmod(0o700)
    real_open, real_mkdir = kernel.openat2, os.mkdir
    for at in range(1, 40):
        volume = tmp_path / f"volume-{at}"
        (volume / sub if there else volume).mkdir(parents=True)
        (volume / ".s").symlink_to(outside)
        hostile = Exchange(volume, "s")
        hostile.at = at

        def open_between(*args: object, hostile: Exchange = hostile, **kwargs: object) -> int:
            hostile()
            try:
                return real_open(*args, **kwargs)  # type: ignore[arg-type]
            finally:
                hostile()

        def make_between(*args: object, hostile: Exchange = hostile, **kwargs: object) -> None:
            hostile()
            try:
                real_mkdir(*args, **kwargs)  # type: ignore[arg-type]
            finally:
                hostile()

        with monkeypatch.context() as patch:
            patch.setattr(kernel, "openat2", open_between)
            patch.setattr(os, "mkdir", make_between)
            try:
                with opened(volume, sub=sub) as found:
                    assert found.is_relative_to(volume)
            except Refused:
                pass
        assert [path.name for path in outside.iterdir()] == ["t"]
        assert outside.stat().st_mode & 0o777 == 0o700
        assert list((outside / "t").iterdir()) == []
        if hostile.moments < at:
            break
    else:
        pytest.fail("there were more moments than were tried")
