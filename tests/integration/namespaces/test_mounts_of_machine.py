"""What a container mounts is what the machine has there now, and what is mounted in a container is nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

# In mounts of its own, which are shared or not, as on a machine with systemd or without.
PROGRAM = """
import os, sys
from pathlib import Path
from sandpool.node.runtimes.namespaces.forked import kernel, mount_sources
folder, propagation = Path(sys.argv[1]), int(sys.argv[2])
def mounts(): return Path("/proc/self/mountinfo").read_text()
kernel.unshare(kernel.CLONE_NEWNS)
kernel.mount("none", "/", "", kernel.MS_REC | propagation)
mount_sources.remember_machine()
kernel.unshare(kernel.CLONE_NEWNS)
kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_SLAVE)
with mount_sources.mounts_of_machine():  # the machine mounts something later
    kernel.mount("tmpfs", str(folder / "volume"), "tmpfs", 0, "size=64k")
    (folder / "volume" / "inside").mkdir()
os.chdir(folder)
source, tree = mount_sources.copy_source(
    {"within": str(folder), "inside": "volume", "source": "volume", "sub": "", "make": False}
)
assert Path.cwd() == folder
place = os.open(folder / "place", os.O_PATH)
kernel.move_mount(tree, place)
assert (folder / "place" / "inside").is_dir(), "not what the machine has there"
kernel.mount("tmpfs", str(folder / "place" / "inside"), "tmpfs", 0, "size=64k")
with mount_sources.mounts_of_machine():
    assert str(folder / "volume") in mounts()
    assert "inside" not in mounts(), mounts()
"""
SHARED, PRIVATE = 1 << 20, 1 << 18


@pytest.mark.parametrize("propagation", [SHARED, PRIVATE])
def test_what_is_mounted_arrives_and_nothing_goes_back(tmp_path: Path, propagation: int) -> None:
    for name in ("volume", "place"):
        (tmp_path / name).mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(propagation)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
