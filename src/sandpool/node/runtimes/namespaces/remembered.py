"""What a probe has found out, kept for as long as the machine is the same: trying again would tell the same, and takes a good part
of a start.

Only a probe that went well is kept. Whether a wall holds never depends on this: each sandbox is confined anew, and one that cannot
be confined is not started.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from sandpool.node.backend import Probe
from sandpool.node.runtimes.namespaces.forked.cgroup_files import read
from sandpool.node.runtimes.namespaces.probing import ADVICE
from sandpool.version import __version__

FILE = "probed.json"
MOST_BYTES = 1 << 16
_OWN = ("Cap", "NoNewPrivs", "Seccomp", "Uid", "Gid")
_FILES = (
    "/proc/sys/kernel/random/boot_id",
    "/proc/version",
    "/proc/self/attr/current",
    "/proc/self/uid_map",
    *(path for path, _, _ in ADVICE),
)


class Remembered(msgspec.Struct, frozen=True):
    machine: str
    enforced: list[str]
    message: str = ""


def fingerprint(facts: Mapping[str, str]) -> str:
    """The same for the same facts, and for no others."""
    text = "\0".join(f"{name}\0{facts[name]}" for name in sorted(facts))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def facts_of_this_machine(folder: Path) -> dict[str, str]:
    """What the outcome of a probe depends on: this boot of this kernel with these settings, what this process may do and which
    control groups it is in, the disk that sandboxes are on, and this release."""
    found = {path: read(path) for path in _FILES}
    found["status"] = "\n".join(line for line in read("/proc/self/status").splitlines() if line.startswith(_OWN))
    found["groups"] = read("/proc/self/cgroup")
    mounts = read("/proc/self/mountinfo").splitlines()
    found["hierarchies"] = "\n".join(line.partition(" ")[2] for line in mounts if " - cgroup" in line)
    found["disk"] = str(os.stat(folder).st_dev)
    found["release"] = f"{__version__} {sys.executable} {Path(__file__)}"
    return found


async def remembering(folder: Path, more: dict[str, str], probe: Callable[[], Awaitable[Probe]]) -> Probe:
    """The outcome of a probe, from memory if nothing has changed since. `folder` is the runtime's; `more` what else it depends on."""
    try:
        machine = fingerprint(_facts(folder) | more)
    except OSError:
        return await probe()  # it says why
    file = folder / FILE
    known = recall(file, machine)
    if known is None:
        known = await probe()  # which may move this process into another control group: the facts are those of a start
        remember(file, machine, known)
    return known


def _facts(folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return facts_of_this_machine(folder)


def recall(file: Path, machine: str) -> Probe | None:
    """What was found out on this very machine; None if nothing is known, or only about another one."""
    try:
        with file.open("rb") as opened:
            found = msgspec.json.decode(opened.read(MOST_BYTES), type=Remembered)
    except (OSError, msgspec.MsgspecError):
        return None
    return Probe(True, "", found.message, frozenset(found.enforced)) if found.machine == machine else None


def remember(file: Path, machine: str, probe: Probe) -> None:
    """A probe that failed is forgotten, so that the next start tries again. Never in the way of a start."""
    try:
        if not probe.available:
            file.unlink(missing_ok=True)
            return
        temporary = file.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(Remembered(machine, sorted(probe.enforced), probe.message)))
        temporary.replace(file)
    except OSError:
        return
