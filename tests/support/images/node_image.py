"""Images for a real node. No registry is needed: they are made of folders, and imported.

Small ones of one static busybox, for pods; the controller's, which is Debian with Python below the tree that tools/controller_tree.py
makes: the same files that deploy/images/controller.Containerfile puts together.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from node import build

TOOLS = Path(__file__).parents[3] / "tools"
PAUSE = "sandpool.test/pause:1"
BOXES = ("sandpool.test/box:1", "sandpool.test/box:2")
"""Two versions of one image; /release tells them apart."""
CONTROLLER = "sandpool.test/controller:1"
COMMANDS = ("sh", "sleep", "cat", "echo", "id", "ls", "touch", "ip", "wget")
_WAIT = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


def write_boxes(folder: Path) -> list[Path]:
    """One archive for each image, ready for `ctr images import`."""
    archives = []
    for name in (PAUSE, *BOXES):
        stem = name.rpartition("/")[2].replace(":", "-")
        _tree(folder / stem, release=name)
        archives.append(folder / f"{stem}.tar")
        entrypoint = [f"--entrypoint={word}" for word in ("/bin/sh", "-c", _WAIT)]
        _tool("oci_archive.py", str(archives[-1]), name, str(folder / stem), *entrypoint)
    return archives


def write_controller(archive: Path) -> None:
    """Downloads the pinned requirements, so it has to be called where there is a network."""
    settings = ("PYTHONPATH=/opt/sandpool/lib", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1", "HOME=/")
    with tempfile.TemporaryDirectory(prefix="sandpool-tree-") as tree:
        _tool("controller_tree.py", tree, "--python-version", build.PYTHON)
        flags = [f"--env={each}" for each in settings]
        flags += [f"--entrypoint={word}" for word in ("python3", "-m", "sandpool")]
        _tool("oci_archive.py", str(archive), CONTROLLER, str(build.debian_root()), tree, *flags)


def _tree(tree: Path, release: str) -> None:
    for each in ("bin", "proc", "sys", "dev", "etc", "tmp", "data"):
        (tree / each).mkdir(parents=True)
    busybox = build.find("busybox")
    assert busybox is not None, "busybox is missing: use `make test-node`"
    shutil.copy(busybox, tree / "bin/busybox")
    for command in COMMANDS:
        (tree / "bin" / command).symlink_to("busybox")
    (tree / "release").write_text(f"{release}\n")


def _tool(name: str, *arguments: str) -> None:
    # `--flag=-c`: a word that begins with a dash is still a value
    subprocess.run([sys.executable, str(TOOLS / name), *arguments], check=True, stdout=subprocess.DEVNULL, timeout=600)
