"""The same pods as an ordinary user, who can neither become another one nor remove what others own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.product.ordinary_user import NOBODY, interpreter, readable_copy


@pytest.mark.ordinary_user
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; the other tests run as this one")
def test_pods_of_an_ordinary_user() -> None:
    home = Path("/tmp") / f"sandpool-pods-{os.getpid()}"
    home.mkdir(mode=0o755)
    work = home / "work"
    work.mkdir(mode=0o700)
    os.chown(work, NOBODY, NOBODY)
    try:
        done = subprocess.run(
            [interpreter(), "-m", "support.node.pod_user", str(work)], user=NOBODY, group=NOBODY, extra_groups=[], cwd=work,
            env={"PYTHONPATH": str(readable_copy(home)), "PATH": os.environ["PATH"], "HOME": str(work)},
            capture_output=True, text=True, timeout=110, check=False,
        )  # fmt: skip
        said = {line["name"]: line["wrong"] for line in map(json.loads, done.stdout.splitlines())}
        assert set(said) == {"process", "namespaces"}, done.stderr
        assert said["process"] == ""
        if said["namespaces"].startswith("skip"):
            pytest.skip(said["namespaces"])
        assert said["namespaces"] == ""
    finally:
        shutil.rmtree(home)
