"""What a process gives up before anything untrusted runs in it. The order matters and is that of `confine`.

Everything here is inherited by all that the process starts, and none of it can be taken back.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct

from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.filter import assemble
from sandpool.node.runtimes.namespaces.forked.frames import Refused, doing
from sandpool.node.runtimes.namespaces.forked.syscalls import architecture

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
    """After the identity is taken, before the command is started."""
    with doing("drop all capabilities"):
        kernel.drop_capabilities()
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    landlock()
    # A dumpable process can be read and changed by others of its owner; and the signal is lost with each change of identity.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    with doing("install the system call filter"):
        kernel.install_filter(program)


def landlock() -> None:
    """Files are to be had below the present root and nowhere else, whatever open file or path leads out of it."""
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
    """rlimits by name, never above what this process itself may have. That of core files is the exception, where we are allowed to: at 0,
    which an operator may have chosen for us, the kernel would hand crashes to a program of the machine."""
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
    """A machine out of memory takes sandboxes before anything else."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(score))
    except OSError:
        pass  # it is already above, and may not be lowered
