"""Finding out, by trying, whether runsc works on this machine and what really holds its sandboxes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.backend import Probe
from sandpool.node.runtimes.contract import Limits, Runtime, SandboxPlan
from sandpool.node.runtimes.namespaces.probing import advice, read_setting, run

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


async def probe(runtime: Runtime, folder: Path, controllers: Callable[[], frozenset[str]]) -> Probe:
    """With a runtime that nobody else uses; `controllers` are those of its control groups, once it is open."""
    if os.uname().sysname != "Linux":
        return Probe(False, "NotLinux", "runsc runs on Linux only; use a Linux machine")
    try:
        await runtime.open()
        try:
            enforced = judge(await _try(runtime, folder), read_setting("/proc/version"), controllers())
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
    return Probe(True, "", told(enforced), enforced)


async def _try(runtime: Runtime, folder: Path) -> str:
    os.makedirs(folder, exist_ok=True)
    sandbox = await runtime.create(SandboxPlan("probe", "probe", folder, LIMITS))
    try:
        return await run(sandbox, SCRIPT, folder, 0)
    finally:
        await sandbox.destroy()
        os.rmdir(folder)


def judge(said: str, machine: str, controllers: frozenset[str]) -> frozenset[str]:
    """What holds, by what the program inside said; of memory, processes and processor time, by whether the kernel took the limit."""
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


def told(enforced: frozenset[str]) -> str:
    missing = [name for name in ("memory", "cpu", "pids", "storage", "io") if name not in enforced]
    if not missing:
        return ""
    words = f"this machine does not enforce: {', '.join(missing)}"
    if "cpu" in missing:
        words += ". Run as root, or give sandpool control groups of its own: systemd-run --user --scope -p Delegate=yes sandpool up"
    if "io" in missing:
        words += "; disk bandwidth is shared, and --io-limit bounds that of each pod"
    return words
