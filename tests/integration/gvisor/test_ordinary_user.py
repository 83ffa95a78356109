"""The same scenarios as an ordinary user, who has nothing but a folder and runsc: no control groups, one id."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.node import runsc
from support.node.gvisor_bench import skip_unless_it_works
from support.product.ordinary_user import NOBODY, interpreter, readable_copy

NAMES = (
    "a_command_gets_what_it_was_given",
    "the_only_way_out_is_the_egress_socket",
    "files_and_the_writable_layer_are_limited",
)
pytestmark = [
    pytest.mark.ordinary_user,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; the scenarios run as this one"),
]


async def test_sandboxes_of_an_ordinary_user(tmp_path: Path) -> None:
    await skip_unless_it_works(tmp_path)
    home = Path("/tmp") / f"sandpool-gvisor-{os.getpid()}"
    home.mkdir(mode=0o755)
    try:
        site = readable_copy(home)
        program, work = home / "runsc", home / "work"
        shutil.copy(str(runsc.path()), program)
        program.chmod(0o755)
        work.mkdir(mode=0o700)
        os.chown(work, NOBODY, NOBODY)
        done = subprocess.run(
            [interpreter(), "-m", "support.node.gvisor_user", str(work), "user", *NAMES], cwd=work, user=NOBODY, group=NOBODY, extra_groups=[],
            env={"PYTHONPATH": str(site), "PATH": os.environ["PATH"], "HOME": str(work), "SANDPOOL_RUNSC": str(program)},
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(home)
    wrong = {said["name"]: said["wrong"] for said in map(json.loads, done.stdout.splitlines())}
    assert wrong == dict.fromkeys(NAMES, ""), done.stderr
