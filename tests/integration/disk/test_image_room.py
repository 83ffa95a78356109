"""Volumes that are file systems in a file: what they take from the disk is what is in them, not what their size is."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from sandpool.local.volumes import images

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not images.possible(), reason="needs root, loop devices and mkfs.ext4"),
]
MIB = 1 << 20


def taken(image: Path) -> int:
    return image.stat().st_blocks * 512


def synced(folder: Path) -> None:
    subprocess.run(["sync", "-f", str(folder)], check=True)


def test_a_large_one_takes_next_to_nothing_and_gives_back_what_is_deleted(tmp_path: Path) -> None:
    image, folder = tmp_path / "image", tmp_path / "folder"
    try:
        images.attach(image, folder, 200 << 30)
    except OSError as error:
        pytest.skip(f"this root may not mount: {error}")
    try:
        empty = taken(image)
        assert empty < 100 * MIB
        with open(folder / "big", "wb") as file:
            for _ in range(64):
                file.write(bytes(MIB))
        synced(folder)
        assert taken(image) > empty + 60 * MIB
        (folder / "big").unlink()
        for _ in range(600):  # blocks are given back after the commit that freed them, by a thread of the kernel
            synced(folder)
            if taken(image) < empty + 16 * MIB:
                break
            time.sleep(0.05)
        else:
            pytest.fail(f"{taken(image)} bytes are still taken, {empty} when it was empty")
    finally:
        images.detach(folder)
