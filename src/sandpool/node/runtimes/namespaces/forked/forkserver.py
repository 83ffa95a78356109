"""The fork-server and its workers: the shim of every sandbox is forked from here, and the containers from their shim (shim.py). One thread, no
secrets, only the standard library.

It ends when the main process closes its socket or dies; shims stay. For an ordinary user it runs in a user namespace in which it may do
what root may do on the machine.

A worker is a newly forked process. The main process tells it over a separate socket what to do. So the fork-server never sees the request:
no environment and no secret of one sandbox is ever in the memory from which another one is forked.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable

from sandpool.node import openat
from sandpool.node.runtimes.namespaces.forked import (
    cgroups,
    confine,
    connections,
    frames,
    identity,
    kernel,
    mount_sources,
    namespaces,
    removal,
    rootfs,
)
from sandpool.node.runtimes.namespaces.forked.forking import fork_worker, own_pid_namespace
from sandpool.node.runtimes.namespaces.forked.frames import Message, Refused
from sandpool.node.runtimes.namespaces.forked.init import MAIN, Boxd, Init
from sandpool.node.runtimes.namespaces.forked.layers import Ids
from sandpool.node.runtimes.namespaces.forked.mount_sources import remember_machine
from sandpool.node.runtimes.namespaces.forked.shim import Shim

SEPARATE = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS


def main(boxd: Boxd | None = None, extra: ExtraRequests | None = None) -> None:
    """Runs the fork server. The last command line argument is the file descriptor of the socket to the main process. `extra` serves further
    requests in workers."""
    sock = socket.socket(fileno=int(sys.argv[-1]))
    os.environ.clear()
    kernel.show_as(b"sandpool fork-server")
    os.chdir("/")
    try:
        program = confine.seccomp_program()
        separate()
    except Refused as refused:
        frames.send(sock, {"refused": [refused.reason, refused.message]})
        return
    serve(sock, boxd, program, extra)


def separate() -> None:
    """Leaves the machine's namespaces. New mounts of the machine still propagate here (MS_SLAVE), but none propagates back."""
    root = os.geteuid() == 0
    uid, gid = os.geteuid(), os.getegid()
    together = {} if root else namespaces.quotas_of_all(namespaces.user_quotas())
    with frames.doing("make a user namespace" if not root else "make namespaces", "Namespaces"):
        if not root:
            kernel.unshare(kernel.CLONE_NEWUSER)
            for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
            namespaces.set_quotas(together)
        else:
            remember_machine()
        kernel.unshare(SEPARATE)
        kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_SLAVE)


def serve(sock: socket.socket, boxd: Boxd | None, program: bytes, extra: ExtraRequests | None = None) -> None:
    """Forks a worker for each socket received, until the main process closes its end."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler would run, here and in everything that is forked
    silence()
    own = own_pid_namespace()
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.register(woken, select.POLLIN)
    gc.collect()
    gc.disable()
    gc.freeze()  # the collector never touches frozen objects, so their pages stay shared with the workers
    frames.send(sock, {"ready": True})
    while True:
        ready = {file for file, _ in poll.poll()}
        if woken in ready:
            reap(woken)
        if sock.fileno() in ready:
            received = frames.receive(sock)
            if received is None:
                os._exit(0)
            for file in received[1]:
                fork_worker(socket.socket(fileno=file), own, sock, lambda each: work(each, boxd, program, extra))


def reap(woken: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(woken, 4096)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


OOM_SCORE = 500
MEASURING = 10  # nice value: a pod with very many files only delays itself

ExtraRequests = Callable[[socket.socket, Message, list[int]], bool]
"""Serves a request that this module does not know; False if it does not know it either."""


def work(sock: socket.socket, boxd: Boxd | None, program: bytes, extra: ExtraRequests | None = None) -> None:
    """Serves one request in a worker. Never raises: errors are sent over the socket."""
    try:
        received = frames.receive(sock)
        if received is not None and not (extra is not None and extra(sock, *received)):
            _work(sock, *received, boxd, program)
    except Refused as refused:
        _reply(sock, {"refused": [refused.reason, refused.message]})
    except OSError as error:
        _reply(sock, {"refused": ["Failed", f"{error.strerror or error} ({error.filename})"]})
    except Exception:
        _reply(sock, {"refused": ["Failed", traceback.format_exc(limit=-2)[-2000:]]})


def _reply(sock: socket.socket, message: Message) -> None:
    with contextlib.suppress(OSError):
        frames.send(sock, message)


def _work(sock: socket.socket, request: Message, files: list[int], boxd: Boxd | None, program: bytes) -> None:
    match request["do"]:
        case "share":
            cgroups.make(request["cgroups"])
            _join_cgroups(request)
            given = namespaces.share(request["hostname"], request["ids"], request["egress"], request["quotas"])
            frames.send(sock, {"done": True}, given)
        case "sockets":
            frames.send(sock, {"done": True}, namespaces.sockets(files[0], request["count"]))
        case "volumes":
            _join_cgroups(request)
            frames.send(sock, {"done": True}, mount_sources.make_memory_volumes(request, files))
        case "disconnect":
            connections.close_listeners(files[0], request["egress"])
            frames.send(sock, {"done": True})
        case "remove":
            connections.close_left(files, request.get("egress", 0))
            cgroups.remove_cgroups(request["cgroups"])
            removal.empty(request["directory"], itself=request["itself"])
            frames.send(sock, {"done": True})
        case "measure":
            os.nice(MEASURING)
            frames.send(sock, {"done": True, "used": openat.disk_usage(request["directories"])})
        case "shim":
            listener = socket.socket(fileno=files[0]) if files else None
            Shim(sock, listener, lambda each: work(each, boxd, program)).run()
        case "container":
            _become_container(sock, request, files, boxd, program)


def _join_cgroups(request: Message) -> None:
    """Joins the sandbox's control groups, so that what this process creates is charged to the sandbox, even if others still hold it
    after the sandbox has ended."""
    confine.prefer_for_oom(OOM_SCORE)
    cgroups.join(request["joined"])


def _become_container(
    sock: socket.socket, request: Message, files: list[int], boxd: Boxd | None, program: bytes
) -> None:
    """Turns this process into pid 1 of the container. The order of the steps matters."""
    channel = files.pop() if request.get("served") else None
    user, net, ipc, uts = files[:4]
    held = files[4] if request["held"] else None
    given = files[5:] if held is not None else files[4:]
    cgroups.make(request["own_cgroups"])
    cgroups.join(request["cgroups"])
    memory = cgroups.open_memory(request["cgroups"]) if boxd is not None else None
    confine.prefer_for_oom(OOM_SCORE)
    ids = Ids(request["base"], user if request["ranged"] else 0)
    trees = mount_sources.copy_memory_volumes(held, request["mounts"]) if held is not None else {}
    disable_imports()
    with frames.doing("enter the sandbox's namespaces", "Namespaces"):
        for file, kind in ((net, kernel.CLONE_NEWNET), (ipc, kernel.CLONE_NEWIPC), (uts, kernel.CLONE_NEWUTS)):
            kernel.setns(file, kind)
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWCGROUP)
    removal.remove_older(request["directory"])
    os.umask(0o022)  # before anything is created: a stricter umask of the operator would apply inside, too
    terminals, proc = rootfs.build(request, ids, trees)
    frames.send(
        sock, {"terminals": True}, [terminals]
    )  # before RLIMIT_NOFILE: descriptors in flight count for the user, and other sandboxes may have many
    confine.limit(request["rlimits"])
    identity.enter(user, ranged=request["ranged"])
    who = identity.look_up(request["user"], request["groups"])
    identity.take(who, proc, ranged=request["ranged"])
    kept = [file for file in (channel, memory) if file is not None]
    kernel.close_all_but({0, 1, 2, sock.fileno(), proc, terminals, *given, *kept})
    confine.confine(program)
    request["env"].setdefault("HOME", who.home)
    expected = None if channel is None else socket.socket(fileno=channel)
    init = Init(sock, proc, terminals, request["env"], request["cwd"] or "/", boxd, expected, memory)
    _run(init, sock, request, given)


def _run(init: Init, sock: socket.socket, request: Message, given: list[int]) -> None:
    answer = init.start(MAIN, request, given)
    frames.send(sock, {"started": True}, answer)
    for file in (*given, *answer):
        os.close(file)
    request.clear()  # drops the request from memory, its environment included
    try:
        init.run()
    finally:
        if (
            init.status is not None
        ):  # for a node process that was killed after it had received, but not recorded, how the command ended
            code = os.waitstatus_to_exitcode(init.status)
            os._exit(code if code >= 0 else 128 - code)


def disable_imports() -> None:
    """Disables imports: from now on modules would be searched in the image, which may contain a hostile one of any name."""
    sys.meta_path.clear()
    sys.path.clear()


def silence() -> None:
    """Replaces stdin, stdout and stderr by /dev/null."""
    null = os.open("/dev/null", os.O_RDWR)
    for file in range(3):
        os.dup2(null, file, inheritable=True)
    os.close(null)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for the rest of the process's life)
