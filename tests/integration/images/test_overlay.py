"""Layers under a real overlay: as root, as root in a user namespace, and as an ordinary user in one."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandpool.node.images.unpack import opaque_attributes
from sandpool.node.images.worker import Job, unpack
from support.images.fast_folder import fast_folder
from support.images.files import Entry, file, folder, layer, opaque, removed, symlink
from support.images.oracle import merged_by_oracle

USER = ("user.overlay.opaque",)
LAYERS = [
    [folder("kept"), file("kept/a", "1"), file("kept/b", "1"), file("gone/x", "1"), file("hidden/x", "1"), symlink("link", "kept")],
    [removed("kept/a"), removed("gone"), file("hidden/y", "2"), opaque("hidden"), file("link/z", "2"), file("twice", "2")],
    [removed("twice"), file("gone/new", "3"), folder("hidden"), removed("kept/b"), file("kept/b/c", "3")],
]  # fmt: skip

MOUNT = """
import json, os, subprocess, sys
from pathlib import Path
place, option = Path(sys.argv[1]), sys.argv[2]
lower = ":".join(str(place / str(number)) for number in reversed(range(int(sys.argv[3]))))
for name in ("upper", "work", "merged"):
    (place / name).mkdir()
told = f"lowerdir={lower},upperdir={place}/upper,workdir={place}/work{option}"
subprocess.run(["mount", "-t", "overlay", "overlay", "-o", told, str(place / "merged")], check=True)
merged, found = place / "merged", {}
for path in sorted(merged.rglob("*")):
    name = str(path.relative_to(merged))
    found[name] = f"link {os.readlink(path)}" if path.is_symlink() else "folder" if path.is_dir() else f"file {path.read_text()}"
(merged / "hidden/written").write_text("x")
subprocess.run(["umount", str(merged)], check=True)
print(json.dumps(found))
"""


def unpacked(place: Path, layers: list[list[Entry]], owners: bool) -> None:
    for number, entries in enumerate(layers):
        (place / str(number)).mkdir()
        fd = os.open(place / str(number), os.O_RDONLY | os.O_DIRECTORY)
        try:
            unpack(
                io.BytesIO(layer(entries)),
                fd,
                Job("", "", "", 1 << 20, 1000, 4095, 200),
                owners,
                opaque_attributes(fd) if owners else USER,
            )
        finally:
            os.close(fd)


def shown(place: Path, option: str, *unshare: str) -> dict[str, str]:
    command = ["unshare", *unshare, sys.executable, "-c", MOUNT, str(place), option, str(len(LAYERS))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"this machine allows no such namespace: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount outside a user namespace")
@pytest.mark.parametrize("option", ["", ",userxattr"])
def test_as_root(option: str) -> None:
    with fast_folder() as place:
        unpacked(place, LAYERS, owners=True)
        assert shown(place, option, "--mount") == merged_by_oracle(LAYERS)


@pytest.mark.parametrize("owners", [False] + [True] * (os.geteuid() == 0))
def test_in_a_user_namespace(owners: bool) -> None:
    """What root unpacked can be used there too."""
    with fast_folder() as place:
        unpacked(place, LAYERS, owners=owners)
        assert shown(place, ",userxattr", "--user", "--map-root-user", "--mount") == merged_by_oracle(LAYERS)


def test_there_is_something_to_see() -> None:
    assert shutil.which("unshare"), "util-linux is everywhere"
    assert merged_by_oracle(LAYERS) == {
        "kept": "folder", "kept/b": "folder", "kept/b/c": "file 3", "hidden": "folder", "hidden/y": "file 2", "link": "folder",
        "link/z": "file 2", "gone": "folder", "gone/new": "file 3",
    }  # fmt: skip
