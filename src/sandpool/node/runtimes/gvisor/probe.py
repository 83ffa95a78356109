"""Finds runsc and tests whether it works on this machine, and what its sandboxes really enforce."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.backend import Probe
from sandpool.node.runtimes.contract import Limits, Runtime, SandboxPlan
from sandpool.node.runtimes.namespaces.probe import advice, read_setting, run_script

OLDEST = 20240101  # the first release date with systrap, directfs, overlays of a given size, and --pass-fd
PATIENCE = 20.0
MOST_SAID = 4096
INSTALL = "install a recent one (https://gvisor.dev/docs/user_guide/install), and name it in SANDPOOL_RUNSC if it is not on PATH"


@dataclass(frozen=True, slots=True)
class Runsc:
    """The runsc that is used."""

    path: Path
    version: str


def find_runsc(given: Path | None) -> Path:
    """The given program, or the first on PATH."""
    found = shutil.which(str(given)) if given is not None else shutil.which("runsc")
    if found is None:
        where = f"{given} is no program" if given is not None else "runsc is not on PATH"
        raise NodeError("NoRunsc", f"{where}; {INSTALL}")
    return Path(found).resolve()


def version_of(said: str) -> str:
    """The version in the first line of `runsc --version`; empty if the output is not runsc's."""
    match = re.match(r"runsc version (\S+)", said)
    return match[1] if match else ""


def release_date(version: str) -> int | None:
    """The date of a release as a number; None for a build that is not a release."""
    match = re.search(r"(?<!\d)(20\d{6})(?!\d)", version)
    return int(match[1]) if match else None


def check_version(path: Path, said: str) -> Runsc:
    """Raises NodeError if it is not runsc, or too old. A version without a date is accepted, because the probe tests it anyway."""
    version = version_of(said)
    if not version:
        raise NodeError("NoRunsc", f"{path} does not say what version of runsc it is; {INSTALL}")
    day = release_date(version)
    if day is not None and day < OLDEST:
        raise NodeError(
            "OldRunsc",
            f"{path} is version {version}, which traces every system call by ptrace and is hundreds of times slower; it must be "
            f"of {OLDEST} or later: {INSTALL}",
        )
    return Runsc(path, version)


async def ask_version(given: Path | None) -> Runsc:
    path = find_runsc(given)
    asked: partial[subprocess.CompletedProcess[bytes]] = partial(
        subprocess.run, [str(path), "--version"], env={}, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False
    )  # fmt: skip
    try:
        done = await asyncio.get_running_loop().run_in_executor(None, asked)
    except OSError as error:
        raise NodeError("NoRunsc", f"{path} cannot be started: {(error.strerror or '').lower()}; {INSTALL}") from error
    except subprocess.TimeoutExpired:
        raise NodeError("NoRunsc", f"{path} --version said nothing for {PATIENCE:.0f} s; {INSTALL}") from None
    return check_version(path, done.stdout[:MOST_SAID].decode(errors="replace"))


STORAGE = 4 << 20
LIMITS = Limits(memory=64 << 20, storage=STORAGE)
NEEDED = frozenset({"kernel", "filesystem", "network", "processes", "capabilities"})
FEW = 10
SCRIPT = f"""
echo "self $$"
while read -r line; do echo "status $line"; done < /proc/self/status
while read -r line; do echo "net $line"; done < /proc/net/dev
read -r line < /proc/version && echo "version $line"
[ -e "$OUTSIDE" ] && echo "saw outside"
head -c {STORAGE * 2} /dev/zero > /tmp/fill 2>/dev/null && echo stored
[ -e /proc/gvisor/kernel_is_gvisor ] && echo marked
true
"""


async def probe(runtime: Runtime, directory: Path, controllers: Callable[[], frozenset[str]]) -> Probe:
    """Probes with a separate runtime. `controllers` returns those of its control groups, once it is open."""
    if os.uname().sysname != "Linux":
        return Probe(False, "NotLinux", "runsc runs on Linux only; use a Linux machine")
    try:
        await runtime.open()
        try:
            enforced = judge(await _try(runtime, directory), read_setting("/proc/version"), controllers())
        finally:
            await runtime.close()
    except NodeError as error:
        settings = advice(read_setting) if error.reason not in ("NoRunsc", "OldRunsc") else []
        return Probe(False, error.reason, "; ".join((error.message, *settings)))
    missing = NEEDED - enforced
    if missing:
        return Probe(
            False, "NotIsolated", f"a sandbox was started, but does not hold: {', '.join(sorted(missing))}", enforced
        )
    return Probe(True, "", enforcement_note(enforced), enforced)


async def _try(runtime: Runtime, directory: Path) -> str:
    os.makedirs(directory, exist_ok=True)
    sandbox = await runtime.create(SandboxPlan("probe", "probe", directory, LIMITS))
    try:
        return await run_script(sandbox, SCRIPT, directory, 0)
    finally:
        await sandbox.destroy()
        os.rmdir(directory)


def judge(said: str, machine: str, controllers: frozenset[str]) -> frozenset[str]:
    """What is enforced, from the report of the program inside; for memory, processes and CPU time, from whether the kernel accepted the limit."""
    lines = [line.split() for line in said.splitlines() if line.strip()]
    status = {words[1].rstrip(":"): words[2] for words in lines if words[0] == "status" and len(words) > 2}
    interfaces = {words[1].partition(":")[0] for words in lines if words[0] == "net" and ":" in words[1]}
    own = next((int(words[1]) for words in lines if words[0] == "self"), 0)
    version = next((" ".join(words[1:]) for words in lines if words[0] == "version"), "")
    holds = {
        "kernel": bool(version) and version != machine,
        "filesystem": ["saw", "outside"] not in lines and bool(lines),
        "network": interfaces == {"lo"},
        "processes": 0 < own < FEW,
        "capabilities": set(status.get("CapBnd", "?")) == {"0"},
        "storage": ["stored"] not in lines and bool(lines),
        **{name: name in controllers for name in ("memory", "cpu", "pids", "io")},
    }
    return frozenset(name for name, true in holds.items() if true)


def enforcement_note(enforced: frozenset[str]) -> str:
    missing = [name for name in ("memory", "cpu", "pids", "storage", "io") if name not in enforced]
    if not missing:
        return ""
    words = f"this machine does not enforce: {', '.join(missing)}"
    if "cpu" in missing:
        words += ". Run as root, or give sandpool control groups of its own: systemd-run --user --scope -p Delegate=yes sandpool up"
    if "io" in missing:
        words += "; disk bandwidth is shared, and --io-limit bounds that of each pod"
    return words
