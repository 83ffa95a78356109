"""Finding out, by trying, whether sandboxes work on this machine and what really holds them.

One sandbox is started with small limits; a program in it reports what it sees and tries to exceed them. `judge` reads the
report: pure. When none can be started, the message names what forbids it and what to do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.backend import Probe
from sandpool.node.images.image import RootFs
from sandpool.node.runtimes.contract import ContainerPlan, Limits, Runtime, Sandbox, SandboxPlan, Stdio

PIDS = 24
MEMORY = 48 << 20
STORAGE = 2 << 20
PATIENCE = 30.0
MOST_SAID = 1 << 20
FEW = 10  # a new process of the machine has a higher number
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


async def probe(runtime: Runtime, folder: Path, *, controllers: Callable[[], frozenset[str]], landlock: bool) -> Probe:
    """With a runtime that nobody else uses; `controllers` are those of its control groups, once it is open."""
    if os.uname().sysname != "Linux":
        return Probe(False, "NotLinux", "namespaces are a part of Linux; use a Linux machine or the process backend")
    try:
        await runtime.open()
        try:
            enforced = judge(await _try(runtime, folder), controllers(), landlock=landlock)
        finally:
            await runtime.close()
    except NodeError as error:
        return Probe(False, error.reason, "; ".join((error.message, *advice(read_setting))))
    missing = NEEDED - enforced
    if missing:
        return Probe(
            False, "NotIsolated", f"a sandbox was started, but not confined: {', '.join(sorted(missing))}", enforced
        )
    return Probe(True, "", told(enforced), enforced)


async def _try(runtime: Runtime, folder: Path) -> str:
    os.makedirs(folder, exist_ok=True)
    sandbox = await runtime.create(SandboxPlan("probe", "probe", folder, LIMITS))
    try:
        said = [await run(sandbox, script, folder, attempt) for attempt, script in enumerate((SCRIPT, FILL, EAT))]
    finally:
        await sandbox.destroy()
        os.rmdir(folder)
    return "\n".join(said)


async def run(sandbox: Sandbox, script: str, folder: Path, attempt: int) -> str:
    reader, writer = os.pipe()
    try:
        env = {"OUTSIDE": str(folder)}
        plan = ContainerPlan("probe", ("sh", "-c", script), RootFs(host=True), env, attempt=attempt)
        try:
            container = await sandbox.start(plan, Stdio(stdout=writer))
        finally:
            os.close(writer)
        async with asyncio.timeout(PATIENCE):
            await asyncio.shield(container.ended)
        return os.read(reader, MOST_SAID).decode(errors="replace")  # a pipe holds no more, and nobody writes any more
    except TimeoutError:
        raise NodeError("Timeout", f"a small program in a sandbox did not end in {PATIENCE:.0f} s; try again") from None
    finally:
        os.close(reader)


def judge(said: str, controllers: frozenset[str], *, landlock: bool) -> frozenset[str]:
    """What holds, by what the programs inside said; of processor time, by whether the kernel took the limit."""
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


def told(enforced: frozenset[str]) -> str:
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
    """Which settings of the machine forbid it, and what to do about them."""
    return [words for path, value, words in ADVICE if read(path) == value]


def read_setting(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
