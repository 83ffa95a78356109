"""Drops privileges before anything untrusted runs: capabilities, Landlock, seccomp, rlimits. The order of `confine` matters.

All child processes inherit these restrictions, and none can be undone.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct

from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.frames import Refused, doing
from sandpool.node.runtimes.namespaces.forked.seccomp import architecture, assemble

# Access rights that each version of Landlock added.
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_SCOPES = 0b11  # abstract unix sockets and signals

Limit = tuple[str, int]


def seccomp_program() -> bytes:
    machine = os.uname().machine
    known = architecture(machine)
    if known is None:
        raise Refused("UnsupportedMachine", f"there is no system call filter for {machine}; use another backend")
    return assemble(known)


def confine(program: bytes) -> None:
    """Call it after the identity is set and before the command is started."""
    with doing("drop all capabilities"):
        kernel.drop_capabilities()
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    landlock()
    # A dumpable process can be read and ptraced by processes of the same user; and a change of identity clears PDEATHSIG.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    with doing("install the system call filter"):
        kernel.install_filter(program)


def landlock() -> None:
    """Restricts file access to the current root, even through open files or paths that lead out of it."""
    abi = kernel.landlock_abi()
    if not abi:
        return
    rights = (1 << _RIGHTS.get(abi, _RIGHTS[5])) - 1
    attributes = struct.pack("=QQQ", rights, 0, _SCOPES) if abi >= 6 else struct.pack("=Q", rights)
    with doing("restrict files with Landlock"):
        ruleset = kernel.landlock_ruleset(attributes)
        root = os.open("/", os.O_PATH | os.O_DIRECTORY)
        kernel.landlock_allow(ruleset, rights, root)
        kernel.landlock_restrict(ruleset)
        os.close(root)
        os.close(ruleset)


def limit(limits: dict[str, int]) -> None:
    """Sets rlimits by name, never above those of this process. The exception, where permitted, is CORE: if it were 0, which the operator may have
    set for us, the kernel would pipe core dumps to a program of the machine."""
    for name, wanted in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        _, most = resource.getrlimit(number)
        value = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        if name == "CORE" and value < wanted:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(number, (wanted, wanted))
                continue
        resource.setrlimit(number, (value, value))


def prefer_for_oom(score: int) -> None:
    """Makes the OOM killer choose sandboxes before anything else of the machine."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(score))
    except OSError:
        pass  # already higher, and lowering it needs privileges
