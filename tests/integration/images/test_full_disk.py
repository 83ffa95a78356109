"""A disk that is full, made with a small tmpfs in namespaces of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[2]

SCRIPT = """
import asyncio, os, subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
place = Path(sys.argv[1]) / "small"
place.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=3m,nr_inodes={sys.argv[3]}", "tmpfs", str(place)], check=True)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

from sandpool.base.errors import NodeError
from support.images.files import file, make_image
from support.images.store import image_store, layers
from support.images.small_registry import small_registry

IMAGES = {
    "download": make_image([file("a", os.urandom(4 << 20))]),
    "unpack": make_image([file("a", bytes(8 << 20))]),
    "inodes": make_image([file(f"f{number}", "x") for number in range(2000)]),
}
FITS = make_image([file("a", "fits")])

async def main():
    async with small_registry() as registry, image_store(place / "images") as store:
        for tag, image in {**IMAGES, "fits": FITS}.items():
            registry.blobs |= image.blobs
            registry.manifests["tool", tag] = (image.media_type, image.manifest)
        for tag in IMAGES:
            if (tag == "inodes") != (sys.argv[3] != "0"):
                continue
            before = os.statvfs(place).f_bfree, os.statvfs(place).f_ffree
            try:
                await store.take(f"{registry.address}/tool:{tag}", holder="a")
            except NodeError as error:
                assert error.reason == "ErrImagePull", error
                assert "no space left" in error.message, error
                assert "sandpool image prune" in error.message, error
            else:
                raise AssertionError(tag)
            assert layers(place / "images") == []
            assert (os.statvfs(place).f_bfree, os.statvfs(place).f_ffree) == before
        assert (await store.take(f"{registry.address}/tool:fits", holder="a")).id == FITS.id

asyncio.run(main())
print("held")
"""


@pytest.mark.parametrize("inodes", ["0", "500"], ids=["bytes", "inodes"])
def test_a_full_disk_is_told_and_nothing_stays(tmp_path: Path, inodes: str) -> None:
    command = ["unshare", "--user", "--map-root-user", "--mount", "--net", sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        [*command, str(tmp_path), str(SUPPORT), inodes], capture_output=True, text=True, timeout=90, check=False
    )
    if done.returncode and done.stderr.startswith("unshare"):
        pytest.skip(f"this machine allows no such namespace: {done.stderr.strip()}")
    assert done.stdout == "held\n", done.stderr
