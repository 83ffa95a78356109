"""The same scenarios as an ordinary user, who has nothing but a folder: no control groups, one id."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandpool.node.runtimes.contract import Limits
from sandpool.node.runtimes.namespaces.cgroup_manager import CgroupManager
from support.node.sandbox_scenarios import SCENARIOS
from support.product.ordinary_user import NOBODY, interpreter, readable_copy

pytestmark = [
    pytest.mark.ordinary_user,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; the scenarios run as this one"),
]


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    home = Path("/tmp") / f"sandpool-user-{os.getpid()}"
    home.mkdir(mode=0o755)
    try:
        readable_copy(home)
        yield home
    finally:
        shutil.rmtree(home)


def run(home: Path, name: str, *arguments: str, groups: tuple[Path, ...] = ()) -> dict[str, str]:
    """What became of the scenarios, by name; in these control groups."""
    work = home / name
    work.mkdir(mode=0o700)
    os.chown(work, NOBODY, NOBODY)
    join = "".join(f"echo 0 > {group}/cgroup.procs; " for group in groups)
    become = f"{join} exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups "
    done = subprocess.run(
        ["sh", "-ec", become + '"$@"', "sh", interpreter(), "-m", "support.node.sandbox_user", str(work), *arguments], cwd=work,
        env={"PYTHONPATH": str(home / "site"), "PATH": os.environ["PATH"], "HOME": str(work)}, capture_output=True,
        text=True, timeout=110, check=False,
    )  # fmt: skip
    if not done.stdout:
        pytest.fail(done.stderr)
    return {said["name"]: said["wrong"] for said in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def outcomes(home: Path) -> dict[str, str]:
    return run(home, "work")


@pytest.mark.parametrize("name", SCENARIOS)
def test_of_a_sandbox(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] == ""


def test_limits_hold_where_control_groups_were_given_to_the_user(home: Path) -> None:
    """As systemd does it for a user's own units: folders that belong to the user, and the user's processes in them."""
    located = CgroupManager(f"given{os.getpid()}")
    located.open(Limits())
    if not {"memory", "pids"} <= set(located.places):
        pytest.skip(f"no control groups can be made here: {located.notes}")
    groups = tuple(Path(folder) for folder in dict.fromkeys(place.directory for place in located.places.values()))
    try:
        for group in groups:
            for path in (group, *group.iterdir()):
                os.chown(path, NOBODY, NOBODY)
        assert run(home, "given", "limits_hold", groups=groups) == {"limits_hold": ""}
    finally:
        located.close()
