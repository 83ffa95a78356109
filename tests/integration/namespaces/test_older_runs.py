"""What an earlier run of a container wrote is removed as soon as nothing of its file system is held, and not before."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.product.ordinary_user import NOBODY, interpreter, readable_copy

SCRIPT = """
import os, sys
from sandpool.node.runtimes.namespaces.forked import kernel, layers, removal
top, uid, gid = sys.argv[1], os.getuid(), os.getgid()
if uid:
    kernel.unshare(kernel.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file: file.write(text)
kernel.unshare(kernel.CLONE_NEWNS)
kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_SLAVE)
os.makedirs(f"{top}/main-0")
stage = layers.Stage(f"{top}/main-0", layers.Ids(0, 0), None)
stage.open()
place = stage.overlay([], "root", {})
os.mkdir(f"{place}/full")
os.close(os.open(f"{place}/full/file", os.O_CREAT))
held = os.open(place, os.O_PATH)
os.chdir("/")
kernel.unmount(f"{top}/main-0/stage")
removal.remove_older(f"{top}/main-1")
print(os.path.exists(f"{top}/main-0/root-upper/full/file"))
os.close(held)
removal.remove_older(f"{top}/main-1")
print(os.listdir(top))
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be either")
@pytest.mark.parametrize("user", [0, NOBODY])
def test_what_is_held_stays_until_it_is_not(user: int) -> None:
    home = Path("/tmp") / f"sandpool-older-{os.getpid()}"
    home.mkdir(mode=0o755)
    try:
        site, work = readable_copy(home), home / "work"
        work.mkdir()
        os.chown(work, user, user)
        done = subprocess.run(
            [interpreter(), "-c", SCRIPT, str(work)], user=user, group=user, extra_groups=[], cwd=work,
            env={"PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if user and "unshare" in done.stderr:
            pytest.skip("an ordinary user may make no namespaces here")
        assert done.stdout.split("\n") == ["True", "[]", ""], done.stderr
    finally:
        shutil.rmtree(home)
