"""The supervisor of one container's processes: starts them, stays the ancestor of all their descendants, and ends them.

It runs as a separate program with only the standard library. Requests are JSON, one per packet of the socket that is its first argument. The
command to start may be long, so it comes in an attached file, before the open files of the command. Responses have the request's number. It
kills everything and then exits when its first command has ended, on request, or when the other end of the socket is closed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import termios
from typing import Any

MAX_PACKET = 1 << 16
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans become our children, not those of the machine's init
_PAGE = resource.getpagesize()
Json = dict[str, Any]


class Supervisor:
    """Serves requests until the first command ends or the client is gone."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._commands: dict[int, int] = {}  # pid -> number of the request that started it
        self._main = 0

    def run(self) -> None:
        """Serves until everything has ended. On every path, nothing that was started is left."""
        wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            while True:
                ready, _, _ = select.select([self._control.fileno(), wake], [], [])
                if wake in ready:
                    with contextlib.suppress(BlockingIOError):
                        while os.read(wake, 4096):
                            pass
                if not self._reap():
                    return
                if self._control.fileno() in ready and not self._serve():
                    return
        finally:
            end_all()
            self._reap()

    def _serve(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._control, MAX_PACKET, 8, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return False
        request = json.loads(data)
        try:
            return self._obey(request, fds)
        except OSError as error:
            self._answer({"id": request["id"], "error": error.strerror or str(error), "errno": error.errno})
            return True
        finally:
            for fd in fds:
                os.close(fd)

    def _obey(self, request: Json, fds: list[int]) -> bool:
        answer: Json = {"id": request["id"]}
        match request["do"]:
            case "start":
                with open(fds.pop(0), "rb") as plan:
                    pid = spawn(json.load(plan), fds)
                self._commands[pid] = request["id"]
                self._main = self._main or pid
                answer["pid"] = pid
            case "signal":
                if request["pid"] in self._commands:
                    with contextlib.suppress(OSError):
                        os.killpg(request["pid"], request["signal"])
            case "kill":
                if request["pid"] in self._commands:
                    kill_tree(request["pid"])
            case "every":
                for pid in descendants(os.getpid()):
                    with contextlib.suppress(OSError):
                        os.kill(pid, request["signal"])
            case "stats":
                answer |= usage()
            case "end":
                return False
        self._answer(answer)
        return True

    def _reap(self) -> bool:
        """Reaps children and reports commands that have ended. False when the main one has."""
        going = True
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                number = self._commands.pop(pid, None)
                if number is not None:
                    self._answer({"ended": number, "status": status})
                    going = going and pid != self._main
        return going

    def _answer(self, answer: Json) -> None:
        with contextlib.suppress(OSError):  # the client is gone: the next read reports it
            self._control.send(json.dumps(answer).encode())


def spawn(plan: Json, fds: list[int]) -> int:
    """Starts a command in a session of its own. OSError if it cannot be started; nothing of it is left then."""
    failure, report = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _become(plan, fds, report)
    os.close(report)
    with open(failure, "rb") as pipe:
        said = pipe.read()
    if said:
        os.waitpid(pid, 0)
        number, _, what = said.decode(errors="replace").partition(" ")
        raise OSError(int(number), what)
    return pid


def _become(plan: Json, fds: list[int], report: int) -> None:
    """In the child; never returns."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        sources = [fds[index] if index is not None else os.open(os.devnull, os.O_RDWR) for index in plan["stdio"]]
        # First move them above 0, 1 and 2, so that none is overwritten before it is duplicated.
        for target, source in enumerate([fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in sources]):
            os.dup2(source, target)
        if plan["tty"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        _forget_signals()
        identity = plan.get("identity")
        if identity is not None:
            os.setgroups(identity["groups"])
            os.setgid(identity["gid"])
            os.setuid(identity["uid"])
        what = plan["cwd"]
        os.chdir(what)
        what = plan["argv"][0]
        os.execvpe(what, plan["argv"], plan["env"])  # noqa: S606  # a shell is not wanted
    except OSError as error:
        os.write(report, f"{error.errno or errno.EIO} {what}: {error.strerror}".encode())
    finally:
        os._exit(127)


def _forget_signals() -> None:
    """Resets signal handlers and the signal mask, which the command would inherit."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def end_all() -> None:
    """Kills all descendants, in rounds until no child is left: orphans become our children and are killed in the next round."""
    while True:
        for pid in _frozen():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


def _frozen() -> set[int]:
    """Stops all our descendants, so that none can fork unnoticed. Repeats, because one may fork during a scan."""
    known: set[int] = set()
    for _ in range(8):
        more = descendants(os.getpid()) - known
        for pid in more:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
        known |= more
        if not more:
            break
    return known


def kill_tree(pid: int) -> None:
    """Kills a command, its descendants and its session."""
    known: set[int] = set()
    while True:
        table = processes()
        tree = {one for one, (_, session) in table.items() if session == pid} | descendants(pid, table) | {pid}
        if tree <= known:
            return
        for one in tree - known:
            with contextlib.suppress(OSError):
                os.kill(one, signal.SIGKILL)
        known |= tree


def processes() -> dict[int, tuple[int, int]]:
    """All processes of the machine that are not dead: parent and session."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(name)
            if fields and fields[0] not in (b"Z", b"X"):
                table[int(name)] = (int(fields[1]), int(fields[3]))
    return table


def descendants(root: int, table: dict[int, tuple[int, int]] | None = None) -> set[int]:
    below: dict[int, list[int]] = {}
    for pid, (parent, _) in (processes() if table is None else table).items():
        below.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = list(below.get(root, ()))
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += below.get(pid, ())
    return found


def stat_fields(pid: int | str) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; empty if the process is gone. The name before that may contain anything, also brackets."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2].split()
    except OSError:
        return []


def usage() -> Json:
    ended, ticks, pages, count = resource.getrusage(resource.RUSAGE_CHILDREN), 0, 0, 0
    for pid in descendants(os.getpid()):
        fields = stat_fields(pid)
        if fields:
            ticks += int(fields[11]) + int(fields[12])
            pages += int(fields[21])
            count += 1
    seconds = ended.ru_utime + ended.ru_stime + ticks / os.sysconf("SC_CLK_TCK")
    return {"cpu": seconds, "memory": pages * _PAGE, "processes": count}


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    Supervisor(control).run()


if __name__ == "__main__":
    main()
