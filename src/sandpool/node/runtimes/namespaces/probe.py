"""Tests whether sandboxes work on this machine, and which limits and isolation really hold.

It starts one sandbox with small limits; a program in it reports what it sees and tries to exceed them. `judge`, which is pure, reads the
report. If no sandbox can be started, the message names what prevents it and what to do. The result of a successful probe is cached while the
machine stays the same, because probing takes a good part of a start. Isolation never depends on the cache: each sandbox is confined anew, and
one that cannot be confined is not started.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from sandpool.base.errors import NodeError
from sandpool.node.backend import Probe
from sandpool.node.images.image import RootFs
from sandpool.node.runtimes.contract import ContainerPlan, Limits, Runtime, Sandbox, SandboxPlan, Stdio
from sandpool.node.runtimes.namespaces.forked.cgroups import read
from sandpool.version import __version__

PIDS = 24
MEMORY = 48 << 20
STORAGE = 2 << 20
PATIENCE = 30.0
MOST_SAID = 1 << 20
FEW = 10  # a pid below this means a new pid namespace; on the machine pids are higher
NEEDED = frozenset({"filesystem", "network", "processes", "capabilities", "seccomp"})
LIMITS = Limits(cpu=0.5, memory=MEMORY, pids=PIDS, storage=STORAGE)

SCRIPT = f"""
echo "self $$"
while read -r line; do echo "status $line"; done < /proc/self/status
while read -r line; do echo "net $line"; done < /proc/net/dev
[ -e "$OUTSIDE" ] && echo "saw outside"
(i=0; while [ $i -lt {PIDS * 2} ]; do sleep 30 & i=$((i + 1)); done) 2>/dev/null
n=0; for each in /proc/[0-9]*; do n=$((n + 1)); done; echo "count $n"
"""
FILL = f"head -c {STORAGE * 2} /dev/zero > /tmp/fill 2>/dev/null && echo stored"
EAT = f"head -c {MEMORY * 2} /dev/zero | tail -c {MEMORY * 2} > /dev/null 2>&1; echo eater $?"
KILLED = "137"

ADVICE = (
    ("/proc/sys/user/max_user_namespaces", "0", "user namespaces are switched off; set the sysctl user.max_user_namespaces to 10000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0",
     "ordinary users may not make user namespaces; set the sysctl kernel.unprivileged_userns_clone to 1, or run as root"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
     "AppArmor takes their powers from the user namespaces of ordinary users; set the sysctl "
     "kernel.apparmor_restrict_unprivileged_userns to 0, give sandpool's python a profile that allows userns, or run as root"),
)  # fmt: skip


async def probe(
    runtime: Runtime, directory: Path, *, controllers: Callable[[], frozenset[str]], landlock: bool
) -> Probe:
    """Probes with a separate runtime. `controllers` returns those of its control groups, once it is open."""
    if os.uname().sysname != "Linux":
        return Probe(False, "NotLinux", "namespaces are a part of Linux; use a Linux machine or the process backend")
    try:
        await runtime.open()
        try:
            enforced = judge(await _try(runtime, directory), controllers(), landlock=landlock)
        finally:
            await runtime.close()
    except NodeError as error:
        return Probe(False, error.reason, "; ".join((error.message, *advice(read_setting))))
    missing = NEEDED - enforced
    if missing:
        return Probe(
            False, "NotIsolated", f"a sandbox was started, but not confined: {', '.join(sorted(missing))}", enforced
        )
    return Probe(True, "", enforcement_note(enforced), enforced)


async def _try(runtime: Runtime, directory: Path) -> str:
    os.makedirs(directory, exist_ok=True)
    sandbox = await runtime.create(SandboxPlan("probe", "probe", directory, LIMITS))
    try:
        said = [
            await run_script(sandbox, script, directory, attempt) for attempt, script in enumerate((SCRIPT, FILL, EAT))
        ]
    finally:
        await sandbox.destroy()
        os.rmdir(directory)
    return "\n".join(said)


async def run_script(sandbox: Sandbox, script: str, directory: Path, attempt: int) -> str:
    reader, writer = os.pipe()
    try:
        env = {"OUTSIDE": str(directory)}
        plan = ContainerPlan("probe", ("sh", "-c", script), RootFs(host=True), env, attempt=attempt)
        try:
            container = await sandbox.start(plan, Stdio(stdout=writer))
        finally:
            os.close(writer)
        async with asyncio.timeout(PATIENCE):
            await asyncio.shield(container.ended)
        return os.read(reader, MOST_SAID).decode(
            errors="replace"
        )  # at most the pipe's capacity; all writers have ended
    except TimeoutError:
        raise NodeError("Timeout", f"a small program in a sandbox did not end in {PATIENCE:.0f} s; try again") from None
    finally:
        os.close(reader)


def judge(said: str, controllers: frozenset[str], *, landlock: bool) -> frozenset[str]:
    """What is enforced, from the report of the programs inside; for CPU time, from whether the kernel accepted the limit."""
    lines = [line.split() for line in said.splitlines() if line.strip()]
    status = {words[1].rstrip(":"): words[2] for words in lines if words[0] == "status" and len(words) > 2}
    interfaces = {words[1].partition(":")[0] for words in lines if words[0] == "net" and ":" in words[1]}
    count, own = (next((int(words[1]) for words in lines if words[0] == name), 0) for name in ("count", "self"))
    holds = {
        "filesystem": ["saw", "outside"] not in lines and bool(lines),
        "network": interfaces == {"lo"},
        "processes": 1 < own < FEW,
        "capabilities": set(status.get("CapBnd", "?")) == {"0"} and status.get("NoNewPrivs") == "1",
        "seccomp": status.get("Seccomp") == "2",
        "landlock": landlock,
        "pids": 0 < count <= PIDS + 2,
        "storage": ["stored"] not in lines,
        "memory": ["eater", KILLED] in lines,
        "cpu": "cpu" in controllers,
        "io": "io" in controllers,
    }
    return frozenset(name for name, true in holds.items() if true)


def enforcement_note(enforced: frozenset[str]) -> str:
    missing = [name for name in ("memory", "cpu", "pids", "storage", "io", "landlock") if name not in enforced]
    if not missing:
        return ""
    words = f"this machine does not enforce: {', '.join(missing)}"
    if "cpu" in missing:
        words += (
            "; limits of memory hold for each process alone. Run as root, or give sandpool control groups of its own: "
        )
        words += "systemd-run --user --scope -p Delegate=yes sandpool up"
    if "io" in missing:
        words += "; disk bandwidth is shared, and --io-limit bounds that of each pod"
    return words


def advice(read: Callable[[str], str]) -> list[str]:
    """Settings of the machine that prevent sandboxes, and what to do about them."""
    return [words for path, value, words in ADVICE if read(path) == value]


def read_setting(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


CACHE_FILE = "probed.json"
MOST_BYTES = 1 << 16
_OWN = ("Cap", "NoNewPrivs", "Seccomp", "Uid", "Gid")
_FILES = (
    "/proc/sys/kernel/random/boot_id",
    "/proc/version",
    "/proc/self/attr/current",
    "/proc/self/uid_map",
    *(path for path, _, _ in ADVICE),
)


class CachedProbe(msgspec.Struct, frozen=True):
    """The stored result of a probe, and the machine it is valid for."""

    machine: str
    enforced: list[str]
    message: str = ""


def fingerprint(facts: Mapping[str, str]) -> str:
    """A hash of the facts."""
    text = "\0".join(f"{name}\0{facts[name]}" for name in sorted(facts))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def facts_of_this_machine(directory: Path) -> dict[str, str]:
    """What the result of a probe depends on: this boot of this kernel with its settings, the privileges and control groups of this process, the
    disk of the sandboxes, and this release."""
    found = {path: read(path) for path in _FILES}
    found["status"] = "\n".join(line for line in read("/proc/self/status").splitlines() if line.startswith(_OWN))
    found["groups"] = read("/proc/self/cgroup")
    mounts = read("/proc/self/mountinfo").splitlines()
    found["hierarchies"] = "\n".join(line.partition(" ")[2] for line in mounts if " - cgroup" in line)
    found["disk"] = str(os.stat(directory).st_dev)
    found["release"] = f"{__version__} {sys.executable} {Path(__file__)}"
    return found


async def cached_probe(directory: Path, more: dict[str, str], probe: Callable[[], Awaitable[Probe]]) -> Probe:
    """The result of a probe, from the cache if nothing has changed since. `directory` is the runtime's; `more` are further facts that the result
    depends on."""
    try:
        machine = fingerprint(_facts(directory) | more)
    except OSError:
        return await probe()  # the probe reports why
    file = directory / CACHE_FILE
    known = load_cached(file, machine)
    if known is None:
        known = await probe()  # may move this process into another control group, so the facts from before are used
        store_cached(file, machine, known)
    return known


def _facts(directory: Path) -> dict[str, str]:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return facts_of_this_machine(directory)


def load_cached(file: Path, machine: str) -> Probe | None:
    """The stored result for this machine; None if there is none."""
    try:
        with file.open("rb") as opened:
            found = msgspec.json.decode(opened.read(MOST_BYTES), type=CachedProbe)
    except (OSError, msgspec.MsgspecError):
        return None
    return Probe(True, "", found.message, frozenset(found.enforced)) if found.machine == machine else None


def store_cached(file: Path, machine: str, probe: Probe) -> None:
    """Stores a success and drops a failure, so that the next start tries again. Never fails."""
    try:
        if not probe.available:
            file.unlink(missing_ok=True)
            return
        temporary = file.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(CachedProbe(machine, sorted(probe.enforced), probe.message)))
        temporary.replace(file)
    except OSError:
        return
