"""Between the machine and the sandbox: what a process that has entered a sandbox's user namespace may still open."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandpool.node.runtimes.namespaces.forked import identity, kernel
from sandpool.node.runtimes.namespaces.forked.namespaces import write_maps
from sandpool.node.runtimes.namespaces.forked.owners import EACH, FIRST
from sandpool.node.runtimes.namespaces.forked.targets import read_small

SECRET = "0:x:0:0::/secret"


def entered(work: Callable[[], str]) -> str:
    """What a child says that has entered a user namespace with a range of ids of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            identity.enter(_user_namespace(), ranged=True)
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def _user_namespace() -> int:
    """Made by a process that stays until this one has it open."""
    ready, made = os.pipe()
    over, end = os.pipe()
    maker = os.fork()
    if maker == 0:
        try:
            os.close(end)
            kernel.unshare(kernel.CLONE_NEWUSER)
            os.write(made, b"+")
            os.read(over, 1)
        finally:
            os._exit(0)
    os.read(ready, 1)
    write_maps(f"/proc/{maker}", f"0 {FIRST} {EACH}".encode(), groups=True)
    found = os.open(f"/proc/{maker}/ns/user", os.O_RDONLY)
    os.close(end)
    os.waitpid(maker, 0)
    return found


@pytest.mark.root
def test_the_list_of_users_is_read_as_by_the_sandbox(tmp_path: Path) -> None:
    """It may be a link to a file of the kernel that only the machine's root may open: its log, which is gone once it is read."""
    for name, owner, mode in (("machine", 0, 0o600), ("everybody", 0, 0o644), ("sandbox", FIRST, 0o600)):
        (tmp_path / name).write_text(SECRET)
        (tmp_path / name).chmod(mode)
        os.chown(tmp_path / name, owner, owner)
    tmp_path.chmod(0o755)
    root = os.open(tmp_path, os.O_PATH)
    try:
        assert entered(lambda: f"-{read_small(root, 'machine')}") == "-"
        assert entered(lambda: read_small(root, "everybody")) == SECRET
        assert entered(lambda: read_small(root, "sandbox")) == SECRET
    finally:
        os.close(root)


@pytest.mark.root
def test_no_power_is_lost_before_all_are_given_up() -> None:
    """What limits all that a process starts can only be taken away by one that still has its powers."""

    def dropped() -> str:
        identity.take(identity.Identity(1000, 1000, (), "/"), -1, ranged=True)
        kernel.drop_capabilities()
        status = Path("/proc/self/status").read_text()
        return "".join(line for line in status.splitlines() if line.startswith(("CapBnd", "CapEff", "CapPrm")))

    assert entered(dropped) == "".join(f"{name}:\t{0:016x}" for name in ("CapPrm", "CapEff", "CapBnd"))
