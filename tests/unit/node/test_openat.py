"""What is changed is what was opened, whatever has its name by then."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandpool.node import openat as descriptors
from support.product.as_nobody import NOBODY, as_nobody


def test_the_mode_of_what_is_held_is_changed_and_no_links(tmp_path: Path) -> None:
    (tmp_path / "precious").touch(0o600)
    (tmp_path / "link").symlink_to("precious")
    (tmp_path / "file").touch(0o600)
    link, file = (descriptors.open_path(tmp_path.as_posix() + name) for name in ("/link", "/file"))
    try:
        (tmp_path / "file").rename(tmp_path / "moved")
        (tmp_path / "link").rename(tmp_path / "file")
        descriptors.set_mode(file, 0o644)
        with pytest.raises(OSError, match="not supported"):
            descriptors.set_mode(link, 0o777)
    finally:
        os.close(link)
        os.close(file)
    assert stat.S_IMODE((tmp_path / "moved").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "precious").stat().st_mode) == 0o600


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_of_what_is_held_is_changed_and_no_links(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    (tmp_path / "link").symlink_to("precious")
    for name in ("link", "precious"):
        file = descriptors.open_path(str(tmp_path / name))
        try:
            descriptors.set_owner(file, 1234, 5678)
        finally:
            os.close(file)
        assert (os.lstat(tmp_path / name).st_uid, os.lstat(tmp_path / name).st_gid) == (1234, 5678)
        assert (tmp_path / "precious").stat().st_uid == (0 if name == "link" else 1234)


@pytest.mark.ordinary_user
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user for it")
def test_a_folder_that_keeps_its_owner_out_is_opened_and_a_link_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "closed").mkdir(parents=True)
    (folder / "closed" / "file").touch()
    (folder / "precious").mkdir()
    (folder / "precious").chmod(0)
    (folder / "link").symlink_to("precious")
    for path in (folder, folder / "closed", folder / "precious"):
        os.chown(path, NOBODY, NOBODY)
    (folder / "closed").chmod(0)
    top = os.open(folder, descriptors.DIRECTORY)

    def work() -> str:
        opened = descriptors.open_directory_anyway("closed", top)
        names = os.listdir(opened)
        os.close(opened)
        try:
            descriptors.open_directory_anyway("link", top)
        except NotADirectoryError:
            names.append("no folder")
        return " ".join(names)

    try:
        assert as_nobody(work) == "file no folder"
    finally:
        os.close(top)
    assert stat.S_IMODE((folder / "precious").stat().st_mode) == 0
