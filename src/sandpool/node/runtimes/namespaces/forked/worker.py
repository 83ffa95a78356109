"""A process that the fork-server has just forked. It is told by the main process, over its own socket, what to become.

So the fork-server itself never sees what it is for: no environment, no secret of one sandbox is ever in the memory from which
another one is forked.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import traceback
from collections.abc import Callable

from sandpool.node.runtimes.namespaces.forked import (
    cgroup_files,
    confine,
    frames,
    identity,
    kernel,
    measure,
    namespaces,
    older,
    removal,
    rootfs,
    volumes,
)
from sandpool.node.runtimes.namespaces.forked.frames import Message, Refused
from sandpool.node.runtimes.namespaces.forked.init import MAIN, Boxd, Init
from sandpool.node.runtimes.namespaces.forked.layers import Ids

OOM_SCORE = 500
MEASURING = 10  # how nice: whoever has very many files waits for it himself

Also = Callable[[socket.socket, Message, list[int]], bool]
"""Carries out an order that is not one of these, or says that it cannot."""


def work(sock: socket.socket, boxd: Boxd | None, program: bytes, also: Also | None = None) -> None:
    """Never returns an error to the caller: what goes wrong is said over the socket."""
    try:
        received = frames.receive(sock)
        if received is not None and not (also is not None and also(sock, *received)):
            _work(sock, *received, boxd, program)
    except Refused as refused:
        _tell(sock, {"refused": [refused.reason, refused.message]})
    except OSError as error:
        _tell(sock, {"refused": ["Failed", f"{error.strerror or error} ({error.filename})"]})
    except Exception:
        _tell(sock, {"refused": ["Failed", traceback.format_exc(limit=-2)[-2000:]]})


def _tell(sock: socket.socket, message: Message) -> None:
    with contextlib.suppress(OSError):
        frames.send(sock, message)


def _work(sock: socket.socket, order: Message, files: list[int], boxd: Boxd | None, program: bytes) -> None:
    match order["do"]:
        case "share":
            cgroup_files.make(order["cgroups"])
            _be_counted(order)
            given = namespaces.share(order["hostname"], order["ids"], order["egress"], order["quotas"])
            frames.send(sock, {"done": True}, given)
        case "sockets":
            frames.send(sock, {"done": True}, namespaces.sockets(files[0], order["count"]))
        case "volumes":
            _be_counted(order)
            frames.send(sock, {"done": True}, volumes.hold(order, files))
        case "remove":
            removal.remove_cgroups(order["cgroups"])
            removal.empty(order["folder"], itself=order["itself"])
            frames.send(sock, {"done": True})
        case "measure":
            os.nice(MEASURING)
            frames.send(sock, {"done": True, "used": measure.measure(order["folders"])})
        case "container":
            _become_container(sock, order, files, boxd, program)


def _be_counted(order: Message) -> None:
    """What this process makes is memory of the sandbox, also when somebody else holds it after the sandbox has ended."""
    confine.prefer_for_oom(OOM_SCORE)
    cgroup_files.join(order["joined"])


def _become_container(sock: socket.socket, order: Message, files: list[int], boxd: Boxd | None, program: bytes) -> None:
    """The steps from a process of the machine to one of the sandbox, in the only order that works."""
    channel = files.pop() if order.get("served") else None
    user, net, ipc, uts = files[:4]
    held = files[4] if order["held"] else None
    given = files[5:] if held is not None else files[4:]
    cgroup_files.make(order["own_cgroups"])
    cgroup_files.join(order["cgroups"])
    memory = cgroup_files.open_memory(order["cgroups"]) if boxd is not None else None
    confine.prefer_for_oom(OOM_SCORE)
    ids = Ids(order["base"], user if order["ranged"] else 0)
    trees = volumes.take(held, order["mounts"]) if held is not None else {}
    import_no_more()
    with frames.doing("enter the sandbox's namespaces", "Namespaces"):
        for file, kind in ((net, kernel.CLONE_NEWNET), (ipc, kernel.CLONE_NEWIPC), (uts, kernel.CLONE_NEWUTS)):
            kernel.setns(file, kind)
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWCGROUP)
    older.remove_older(order["folder"])
    os.umask(0o022)  # before anything is made: what the operator's own umask closes would be closed inside too
    terminals, proc = rootfs.build(order, ids, trees)
    frames.send(
        sock, {"terminals": True}, [terminals]
    )  # before limits, with which it could not: others may have many files on their way
    confine.limit(order["rlimits"])
    identity.enter(user, ranged=order["ranged"])
    who = identity.look_up(order["user"], order["groups"])
    identity.take(who, proc, ranged=order["ranged"])
    kept = [file for file in (channel, memory) if file is not None]
    kernel.close_all_but({0, 1, 2, sock.fileno(), proc, terminals, *given, *kept})
    confine.confine(program)
    order["env"].setdefault("HOME", who.home)
    expected = None if channel is None else socket.socket(fileno=channel)
    init = Init(sock, proc, terminals, order["env"], order["cwd"] or "/", boxd, expected, memory)
    _run(init, sock, order, given)


def _run(init: Init, sock: socket.socket, order: Message, given: list[int]) -> None:
    answer = init.start(MAIN, order, given)
    frames.send(sock, {"started": True}, answer)
    for file in (*given, *answer):
        os.close(file)
    order.clear()  # what it was told is not needed twice
    init.run()


def import_no_more() -> None:
    """From now on modules would be looked for in the image, where somebody hostile can have put one of any name."""
    sys.meta_path.clear()
    sys.path.clear()


def silence() -> None:
    """Nothing of the machine's is open as stdin, stdout or stderr."""
    null = os.open("/dev/null", os.O_RDWR)
    for file in range(3):
        os.dup2(null, file, inheritable=True)
    os.close(null)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for the rest of the process's life)
