"""The same limits for an ordinary user, whose daemon may not read all files of its sandboxes and has no control groups."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.node.disk_user import ATTEMPTS, LIMIT
from support.node.small_disk import MIB, small_disk
from support.product.ordinary_user import NOBODY, interpreter, readable_copy


@pytest.mark.ordinary_user
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user and mount a small disk")
def test_an_ordinary_user_has_limits_too() -> None:
    home = Path("/tmp") / f"sandpool-disk-{os.getpid()}"
    home.mkdir(mode=0o755)
    try:
        site = readable_copy(home, ("prometheus_client",))
        with small_disk(home, 1800 * MIB) as disk:
            work = disk / "work"
            work.mkdir(mode=0o700)
            os.chown(work, NOBODY, NOBODY)
            done = subprocess.run(
                [interpreter(), "-m", "support.node.disk_user", str(work)], user=NOBODY, group=NOBODY, extra_groups=[],
                cwd=work, env={"PYTHONPATH": str(site), "PATH": os.environ["PATH"], "HOME": str(work)},
                capture_output=True, text=True, timeout=110, check=False,
            )  # fmt: skip
        said = [json.loads(line) for line in done.stdout.splitlines()]
        if said and "skip" in said[0]:
            pytest.skip(said[0]["skip"])
        assert {one["name"]: one["wrong"] for one in said} == dict.fromkeys(ATTEMPTS, ""), done.stderr
        for one in said:
            assert "exceeds the total limit" in one["why"], one
            assert one["taken"] <= LIMIT + 1024 * MIB, one
    finally:
        shutil.rmtree(home)
