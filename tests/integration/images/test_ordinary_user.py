"""Images of an ordinary user: imported, mounted in a namespace of that user, removed again whatever their modes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import sandpool
from support.images.files import file, folder, make_image, opaque, removed, write_oci_archive

NOBODY = 65534
IMAGE = make_image(
    [
        folder("d", 0o500),
        file("d/a", "1", mode=0o4755, uid=7),
        file("e/old", "1"),
        folder("shut", 0),
        file("shut/f", "1"),
    ],
    [removed("d/a"), file("e/new", "2"), opaque("e")],
)

SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from sandpool.node.images.prune import PruneRules
from sandpool.node.images.store import ImageStore
from sandpool.base.clock import SystemClock

async def main():
    store = ImageStore(Path("images"), SystemClock())
    await store.open()
    if sys.argv[1] == "import":
        await store.import_archive(Path("a.tar").absolute())
        image = await store.take("tool:1", holder="pod")
        print(json.dumps([str(layer) for layer in image.rootfs.layers]))
    else:
        print(json.dumps((await store.prune(PruneRules(0.0, 0, imported=True))).images))
    await store.close()

asyncio.run(main())
"""

MOUNT = """
import json, os, subprocess, sys
for name in ("upper", "work", "merged"):
    os.mkdir(name)
told = "lowerdir=" + ":".join(reversed(json.loads(sys.argv[1]))) + ",upperdir=upper,workdir=work,userxattr"
subprocess.run(["mount", "-t", "overlay", "overlay", "-o", told, "merged"], check=True)
assert os.stat("merged/d").st_mode & 0o7777 == 0o500
print(json.dumps({name: sorted(os.listdir("merged/" + name)) for name in sorted(os.listdir("merged"))}))
os.chmod("merged/shut", 0o700)
open("merged/shut/f", "a").write("2")
assert open("merged/shut/f").read() == "12"
"""


@pytest.fixture
def home() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    place = Path("/tmp") / f"sandpool-images-{os.getpid()}"
    place.mkdir(mode=0o700)
    try:
        copies = {Path(sandpool.__file__).parent: "sandpool", Path(msgspec.__file__).parent: "msgspec"}
        for source, name in copies.items():
            shutil.copytree(source, place / "site" / name, ignore=shutil.ignore_patterns("__pycache__"))
        yield place
    finally:
        shutil.rmtree(place)


def run(home: Path, *command: str) -> str:
    done = subprocess.run(
        command, user=NOBODY, group=NOBODY, extra_groups=[], cwd=home, env={"PYTHONPATH": str(home / "site"), "PATH": os.environ["PATH"]},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode and done.stderr.startswith("unshare"):
        pytest.skip(f"this machine allows no such namespace: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(home: Path) -> str:
    """An interpreter of this very version that another user may start."""
    for candidate in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        try:
            if run(home, candidate, "-c", "import sys; print(sys.version_info[:2])").strip() == str(
                sys.version_info[:2]
            ):
                return candidate
        except (OSError, AssertionError):
            continue
    pytest.skip("no interpreter of this version that another user may start")


@pytest.mark.ordinary_user
def test_an_ordinary_user(home: Path) -> None:
    write_oci_archive(home / "a.tar", {"tool:1": IMAGE})
    for path in (home, *home.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    interpreter = python(home)
    layers = json.loads(run(home, interpreter, "-c", SCRIPT, "import"))
    records = [json.loads((home / layer).parent.joinpath("layer.json").read_text()) for layer in layers]
    assert len(layers) == 3  # the second does not describe d, so one on top says how it looks
    assert [record["owners"] for record in records] == [False] * 3
    assert [record["opaque"] for record in records] == [["user.overlay.opaque"]] * 3
    assert {os.lstat(path).st_uid for layer in layers for path in (home / layer).rglob("*")} == {NOBODY}
    assert (home / layers[0] / "d/a").stat().st_mode & 0o7000 == 0
    shown = run(home, "unshare", "-Urm", interpreter, "-c", MOUNT, json.dumps([str(home / layer) for layer in layers]))
    assert json.loads(shown) == {"d": [], "e": ["new"], "shut": ["f"]}
    assert json.loads(run(home, interpreter, "-c", SCRIPT, "prune")) == ["docker.io/library/tool:1"]
    assert list((home / "images/layers").iterdir()) == []
