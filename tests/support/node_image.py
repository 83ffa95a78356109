"""Images for a real node, made of one static busybox: no registry is needed, they are imported."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from node.build import find

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from oci_archive import Image, pack

PAUSE = "sandpool.test/pause:1"
BOXES = ("sandpool.test/box:1", "sandpool.test/box:2")
"""Two versions of one image; /release tells them apart."""
COMMANDS = ("sh", "sleep", "cat", "echo", "id", "hostname", "grep", "ls", "wget", "httpd", "ps", "kill", "touch", "ip")
_WAIT = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


def write_images(folder: Path) -> list[Path]:
    """One archive for each image, ready for `ctr images import`."""
    archives = []
    for name in (PAUSE, *BOXES):
        stem = name.rpartition("/")[2].replace(":", "-")
        tree = _tree(folder / stem, release=name)
        archive = folder / f"{stem}.tar"
        pack(archive, Image(name, entrypoint=("/bin/sh", "-c", _WAIT)), [tree])
        archives.append(archive)
    return archives


def _tree(tree: Path, release: str) -> Path:
    binaries = tree / "bin"
    binaries.mkdir(parents=True)
    busybox = find("busybox")
    assert busybox is not None
    shutil.copy(busybox, binaries / "busybox")
    (binaries / "busybox").chmod(0o755)
    for command in COMMANDS:
        (binaries / command).symlink_to("busybox")
    (tree / "tmp").mkdir()
    (tree / "tmp").chmod(0o1777)
    for each in ("proc", "sys", "dev", "etc", "data"):
        (tree / each).mkdir()
    (tree / "release").write_text(f"{release}\n")
    (tree / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\nbox:x:65532:65532::/tmp:/bin/sh\n")
    return tree
