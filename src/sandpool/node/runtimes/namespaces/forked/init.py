"""Pid 1 of a container: starts its command, reaps what is orphaned, and does what the main process asks, until the command
ends, and with it, by the kernel, everything else.

It has the identity, the filter and the limits of what it starts, so that it has nothing that could be stolen, but it cannot
be read, traced or stopped from inside. It needs no new process for its answers, except to run one. When the main process
is gone, so is it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sandpool.node.runtimes.namespaces.forked import frames, kernel, processes, spawn
from sandpool.node.runtimes.namespaces.forked.frames import Message, Refused

MAIN = 0  # the number of the container's own command; commands of exec count from 1
MOST_ROUNDS = 100

Boxd = Callable[[socket.socket, Mapping[str, str], str, int | None], object]
"""Serves connections, which it receives as open files over this socket, until the socket ends; with the environment and the
folder that commands get, and with the file that counts what ended for want of memory, if there is one. Runs in a process of its own, in which no signal has a handler. All that it imports must have been
imported before. Until the first connection comes it should do nothing: what it writes to is memory of its own."""


@dataclass(slots=True)
class Init:
    asked: socket.socket
    proc: int
    terminals: int
    env: Mapping[str, str]
    cwd: str
    boxd: Boxd | None
    expected: socket.socket | None = None  # for a boxd that is got ready before anybody asks for it
    memory: int | None = None
    _tasks: dict[int, int] = field(default_factory=dict)  # pid by number
    _numbers: dict[int, int] = field(default_factory=dict)  # and the other way
    _boxd: socket.socket | None = None

    def start(self, number: int, order: Message, files: list[int]) -> list[int]:
        """Starts a command; the answer's files: the master of its terminal."""
        env = {**self.env, **order["env"]}
        cwd = order["cwd"] or self.cwd
        if order["tty"]:
            env.setdefault("TERM", "xterm")
            master, slave = spawn.open_terminal(self.terminals)
            try:
                pid = spawn.start(order["argv"], env, cwd, (), slave)
            except BaseException:
                os.close(master)
                raise
            finally:
                os.close(slave)
            answer = [master]
        else:
            pid = spawn.start(order["argv"], env, cwd, stdio(order["stdio"], files), None)
            answer = []
        self._tasks[number] = pid
        self._numbers[pid] = number
        return answer

    def run(self) -> None:
        """Until the command ends or the main process is gone."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(self.asked, select.POLLIN)
        running = self._reap()
        if running and self.expected is not None:
            self._get_boxd_ready(self.expected)
        while running:
            ready = {file for file, _ in poll.poll()}
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 4096)
                running = self._reap()
            if running and self.asked.fileno() in ready:
                running = self._answer()

    def _reap(self) -> bool:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return MAIN in self._tasks
            if pid == 0:
                return MAIN in self._tasks
            number = self._numbers.pop(pid, None)
            if number is None:
                continue
            del self._tasks[number]
            frames.send(self.asked, {"ended": number, "status": status})
            if number == MAIN:
                return False

    def _answer(self) -> bool:
        """One request. Whatever is wrong with it is the asker's to hear."""
        received = frames.receive(self.asked)
        if received is None:
            return False
        order, files = received
        answer: Message = {"id": order.get("id")}
        given: list[int] = []
        try:
            more, given = self._carry_out(order, files)
            answer.update(more)
        except Refused as refused:
            answer["refused"] = [refused.reason, refused.message]
        except OSError as error:
            answer["refused"] = ["Failed", f"{order.get('do')}: {error.strerror}"]
        finally:
            for file in files:
                os.close(file)
        frames.send(self.asked, answer, given)
        for file in given:
            os.close(file)
        return True

    def _carry_out(self, order: Message, files: list[int]) -> tuple[Message, list[int]]:
        match order["do"]:
            case "exec":
                return {}, self.start(order["task"], order, files)
            case "signal":
                self._signal(order["task"], order["signal"])
            case "kill":
                self._kill(order["task"])
            case "all":  # everybody but this process
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, order["signal"])
            case "usage":
                seconds, memory, count = processes.usage(processes.listed(self.proc))
                return {"seconds": seconds, "memory": memory, "processes": count}, []
            case "connect":
                self._connect(files)
            case unknown:
                raise Refused("Failed", f"{unknown!r} is unknown")
        return {}, []

    def _signal(self, number: int, what: int) -> None:
        pid = self._tasks.get(number)
        if pid is not None:  # not reaped, so the number is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, what)

    def _kill(self, number: int) -> None:
        """Again until nobody new has appeared: whoever forks faster than this is found in the next round."""
        pid = self._tasks.get(number)
        killed: set[int] = set()
        for _ in range(MOST_ROUNDS if pid is not None else 0):
            assert pid is not None
            found = processes.descendants(processes.listed(self.proc), pid) - killed
            if not found:
                return
            for each in sorted(
                found, key=lambda one: one != pid
            ):  # the leader first, lest it goes on without the others
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            killed |= found

    def _connect(self, files: list[int]) -> None:
        if self.boxd is None:
            raise Refused("Unsupported", "this runtime was started without boxd")
        for again in (False, True):
            if self._boxd is None:
                self._boxd = self._start_boxd(self.boxd)
            try:
                frames.send_packet(self._boxd, b"+", files)
                return
            except BlockingIOError:  # somebody has stopped it; whoever asks for something else need not wait
                raise Refused("Busy", "boxd takes no connections; try again later") from None
            except (BrokenPipeError, ConnectionResetError):
                self._boxd.close()
                self._boxd = None  # it has ended; once more with another one
                if again:
                    raise

    def _get_boxd_ready(self, channel: socket.socket) -> None:
        """The last thing before the first rest: each page that this process writes to afterwards would be there twice. If it
        cannot be, the channel has no other end, and whoever connects asks for another one."""
        if self.boxd is None:
            channel.close()
        else:
            self._fork_boxd(self.boxd, channel)
        self.expected = None

    def _start_boxd(self, boxd: Boxd) -> socket.socket:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        if not self._fork_boxd(boxd, its):
            ours.close()
            raise Refused(
                "ResourceExhausted", "cannot start boxd: the sandbox's limit of processes or memory is reached"
            )
        return ours

    def _fork_boxd(self, boxd: Boxd, its: socket.socket) -> bool:
        """From `run` on. The socket is the child's."""
        try:
            child = kernel.fork()
        except OSError:
            its.close()
            return False
        if child == 0:
            try:
                signal.set_wakeup_fd(-1)
                kernel.default_signal(signal.SIGCHLD)
                kernel.close_all_but({0, 1, 2, its.fileno(), *([] if self.memory is None else [self.memory])})
                os.setsid()
                gc.enable()
                boxd(its, self.env, self.cwd, self.memory)
            finally:
                os._exit(0)
        its.close()
        return True


def stdio(given: Sequence[bool], files: Sequence[int]) -> list[int | None]:
    """Which of the files that came is which."""
    rest = iter(files)
    return [next(rest) if each else None for each in given]
