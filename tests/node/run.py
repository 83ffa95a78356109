"""Runs the tests of a real node: `PYTHONPATH=tests python -m node.run [PYTEST ARGUMENTS]`.

Everything happens in namespaces of its own: mounts, processes, network. The first process in there is this file again; when it
ends, the kernel ends all others and takes mounts and network away. What can outlive it, cgroups and one folder, is removed here.
In there is no way to any other machine. Where the machine forbids a node, the tests say why and are skipped.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kube import build as kube
from node import build, probe
from support.images.node_image import write_controller

TESTS = Path(__file__).parents[1]
VARIABLE = "SANDPOOL_NODE"
"""Set for tests that run inside: the folder of the node. Its name is also the name of the node's cgroup."""
NAME, ADDRESS = "real", "10.88.0.1"
"""Of the node. No name but this one is known in there, and nobody is asked for others."""
SERVICE = "10.96.0.1"
"""Where pods look for the API server."""
SERVERS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "helm")
# What a kubelet wants of the whole machine. It gets files that say so, in its own view only: the machine stays as it is.
TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}


def main(arguments: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", str(TESTS / "node"), "-m", "node", *arguments]
    if probe.forbidden():
        return subprocess.run(command, check=False).returncode
    try:
        kube.build(SERVERS, kube.cache_folder())
        build.build()
        build.build_root()
    except kube.CannotBuild as trouble:
        kube.say(f"error: {trouble}")
        return 1
    folder = Path(tempfile.mkdtemp(prefix="sandpool-node-"))
    try:
        write_controller(folder / "controller.tar")
        make_groups(folder.name)
        inner = [*probe.UNSHARE, sys.executable, "-m", "node.run", "--inside", str(folder), *command]
        return subprocess.run(inner, check=False).returncode
    finally:
        remove_groups(folder.name)
        shutil.rmtree(folder)


def make_groups(name: str) -> None:
    """The group below which the kubelet keeps all others. In version 1 a new one has no processor and no memory to use."""
    for top in probe.controller_folders(probe.CGROUPS):
        group = top / name
        group.mkdir()
        for file in ("cpuset.cpus", "cpuset.mems"):
            if not probe.unified(probe.CGROUPS) and (group / file).exists():
                (group / file).write_text((top / file).read_text())


def remove_groups(name: str) -> None:
    """Innermost first; a group whose last process was killed a moment ago is still busy."""
    for top in probe.controller_folders(probe.CGROUPS):
        groups = sorted((top / name).glob("**/"), key=lambda path: len(path.parts), reverse=True)
        for group in groups:
            for _ in range(100):
                with contextlib.suppress(FileNotFoundError, OSError):
                    group.rmdir()
                if not group.exists():
                    break
                time.sleep(0.05)


def inside(folder: Path, command: Sequence[str]) -> int:
    """The first process of the namespaces: prepares them, starts the command, and reaps whatever is left to it."""
    _prepare_mounts(folder)
    _prepare_network()
    child = os.posix_spawn(command[0], list(command), {**os.environ, VARIABLE: str(folder)})
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _prepare_mounts(folder: Path) -> None:
    """/run is empty; what is written below /var goes into the folder; some files read as the node needs them."""
    _run("mount", "-t", "tmpfs", "none", "/run")
    upper, work = folder / "var", folder / "var.work"
    upper.mkdir()
    work.mkdir()
    _run("mount", "-t", "overlay", "-o", f"lowerdir=/var,upperdir={upper},workdir={work}", "none", "/var")
    contents = {f"/proc/sys/{name}": str(value) for name, value in TUNABLES.items()}
    contents["/etc/hosts"] = f"127.0.0.1 localhost\n{ADDRESS} {NAME}"
    contents["/etc/resolv.conf"] = "nameserver 127.0.0.1"
    for number, (name, text) in enumerate(contents.items()):
        file = folder / f"file-{number}"
        file.write_text(f"{text}\n")
        _run("mount", "--bind", str(file), name)


def _prepare_network() -> None:
    """Loopback, and a bridge that bears the node's address: the kubelet refuses to be at a loopback address."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "node0", "type", "bridge")
    _run("ip", "address", "add", f"{ADDRESS}/24", "dev", "node0")
    _run("ip", "address", "add", f"{SERVICE}/32", "dev", "node0")
    _run("ip", "link", "set", "node0", "up")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        sys.exit(inside(Path(sys.argv[2]), sys.argv[3:]))
    sys.exit(main(sys.argv[1:]))
