"""Pid 1 of a container: starts its command, reaps orphans, and serves requests of the main process until the command ends. When pid 1 exits,
the kernel kills everything else in the container.

It has the same identity, seccomp filter and limits as the processes it starts, so an attacker gains nothing by taking it over. Still, it
cannot be read, traced or stopped from inside. It forks only to start commands. When nobody holds the other end of its socket, it exits; the
sandbox's shim holds it, so it outlives the main process. It has one thread, and all its files are close-on-exec.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import select
import signal
import socket
import stat
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sandpool.node.runtimes.namespaces.forked import frames, kernel, processes
from sandpool.node.runtimes.namespaces.forked.frames import Message, Refused

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TIOCSPTLCK, TIOCGPTPEER = 0x40045431, 0x5441
IGNORED_BY_US = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)


def find_program(name: str, search: str) -> str:
    """Searches PATH as a shell does. This happens before the fork: trying candidates with exec would cost a process for each."""
    if "/" in name:
        return name
    failure = errno.ENOENT
    for directory in search.split(":"):
        path = os.path.join(directory or ".", name)
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                continue
        except (OSError, ValueError):
            continue
        if os.access(path, os.X_OK):
            return path
        failure = errno.EACCES
    raise OSError(failure, os.strerror(failure))


def start_error(error: OSError, argv: Sequence[str]) -> Refused:
    """Converts an OSError to an error with a message like a shell's."""
    name = argv[0]
    known = {
        errno.ENOENT: f"no such file or directory: {name!r}",
        errno.EACCES: f"permission denied: {name!r} is not executable",
        errno.ENOEXEC: f"exec format error: {name!r} is no program for this machine",
        errno.ENOTDIR: f"not a directory: {name!r}",
        errno.E2BIG: "argument list too long",
    }
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return Refused(
            "ResourceExhausted", f"cannot start {name!r}: the sandbox's limit of processes or memory is reached"
        )
    return Refused("StartError", known.get(error.errno or 0, f"cannot start {name!r}: {error.strerror}"))


def start_command(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Sequence[int | None], terminal: int | None
) -> int:
    """Starts the command in a new session, with the terminal as its controlling terminal, and returns its pid once it runs."""
    if not argv:
        raise Refused("StartError", "there is no command; set the container's command or use an image that has one")
    enter_directory(cwd)
    try:
        return os.posix_spawn(
            find_program(argv[0], env.get("PATH", DEFAULT_PATH)), list(argv), dict(env),
            file_actions=file_actions(stdio, terminal), setsid=True, setsigmask=(), setsigdef=IGNORED_BY_US,
        )  # fmt: skip
    except (ValueError, UnicodeError) as error:
        raise Refused("StartError", f"the command or its environment cannot be passed on: {error}") from error
    except OSError as error:
        raise start_error(error, argv) from error
    finally:
        os.chdir("/")


def enter_directory(cwd: str) -> None:
    try:
        os.chdir(cwd or "/")
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else str(error)
        raise Refused("StartError", f"cannot use the working directory {cwd!r}: {(what or '').lower()}") from error


def file_actions(stdio: Sequence[int | None], terminal: int | None) -> list[tuple[object, ...]]:
    if terminal is not None:  # opened by the new session leader, it becomes the controlling terminal
        opened = (os.POSIX_SPAWN_OPEN, 0, f"/proc/self/fd/{terminal}", os.O_RDWR, 0)
        return [opened, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    found: list[tuple[object, ...]] = []
    for number, file in enumerate(stdio):
        if file is None:
            found.append((os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0))
        else:
            found.append((os.POSIX_SPAWN_DUP2, file, number))
    return found


def open_terminal(terminals: int) -> tuple[int, int]:
    """Master and slave of a new terminal in this container's devpts. No path is resolved that a process inside could have changed."""
    try:
        master = os.open("ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=terminals)
        fcntl.ioctl(master, TIOCSPTLCK, struct.pack("i", 0))
        return master, fcntl.ioctl(master, TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise Refused("StartError", f"cannot open a terminal: {(error.strerror or '').lower()}") from error


MAIN = 0  # the number of the container's own command; commands of exec count from 1
MOST_ROUNDS = 100

Boxd = Callable[[socket.socket, Mapping[str, str], str, int | None], object]
"""The entry point of boxd. Its arguments: a socket over which it receives connections as descriptors until it closes, the environment and
directory of commands, and the file that counts OOM kills, if there is one. It runs in its own process without signal handlers, and must not
import anything there. Until the first connection it should do nothing, because every page that it writes to is copied."""


@dataclass(slots=True)
class Init:
    """The state of a container's init: its commands, and its connection to the main process."""

    asked: socket.socket
    proc: int
    terminals: int
    env: Mapping[str, str]
    cwd: str
    boxd: Boxd | None
    expected: socket.socket | None = None  # channel of a boxd that is prestarted
    memory: int | None = None
    _tasks: dict[int, int] = field(default_factory=dict)  # pid by number
    _numbers: dict[int, int] = field(default_factory=dict)  # number by pid
    _boxd: socket.socket | None = None
    status: int | None = None  # the wait status of the container's own command, once it has exited

    def start(self, number: int, request: Message, files: list[int]) -> list[int]:
        """Starts a command. Returns the files of the response: the master of its terminal, if it has one."""
        env = {**self.env, **request["env"]}
        cwd = request["cwd"] or self.cwd
        if request["tty"]:
            env.setdefault("TERM", "xterm")
            master, slave = open_terminal(self.terminals)
            try:
                pid = start_command(request["argv"], env, cwd, (), slave)
            except BaseException:
                os.close(master)
                raise
            finally:
                os.close(slave)
            answer = [master]
        else:
            pid = start_command(request["argv"], env, cwd, stdio(request["stdio"], files), None)
            answer = []
        self._tasks[number] = pid
        self._numbers[pid] = number
        return answer

    def run(self) -> None:
        """Serves until the command ends or the main process is gone."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(self.asked, select.POLLIN)
        running = self._reap()
        if running and self.expected is not None:
            self._prestart_boxd(self.expected)
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
            if number == MAIN:
                self.status = status
            frames.send(self.asked, {"ended": number, "status": status})
            if number == MAIN:
                return False

    def _answer(self) -> bool:
        """Serves one request; errors go to the sender."""
        received = frames.receive(self.asked)
        if received is None:
            return False
        request, files = received
        answer: Message = {"id": request.get("id")}
        given: list[int] = []
        try:
            more, given = self._carry_out(request, files)
            answer.update(more)
        except Refused as refused:
            answer["refused"] = [refused.reason, refused.message]
        except OSError as error:
            answer["refused"] = ["Failed", f"{request.get('do')}: {error.strerror}"]
        finally:
            for file in files:
                os.close(file)
        frames.send(self.asked, answer, given)
        for file in given:
            os.close(file)
        return True

    def _carry_out(self, request: Message, files: list[int]) -> tuple[Message, list[int]]:
        match request["do"]:
            case "exec":
                return {}, self.start(request["task"], request, files)
            case "signal":
                self._signal(request["task"], request["signal"])
            case "kill":
                self._kill(request["task"])
            case "alone":  # commands of a node process that is gone: nobody reads what they write
                for number in [each for each in self._tasks if each != MAIN]:
                    self._kill(number)
            case "all":  # every process but this one
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, request["signal"])
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
        if pid is not None:  # not reaped yet, so the pid is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, what)

    def _kill(self, number: int) -> None:
        """Kills a command and its descendants. Repeats until no new process appears, because one may fork during a round."""
        pid = self._tasks.get(number)
        killed: set[int] = set()
        for _ in range(MOST_ROUNDS if pid is not None else 0):
            assert pid is not None
            found = processes.descendants(processes.listed(self.proc), pid) - killed
            if not found:
                return
            for each in sorted(
                found, key=lambda one: one != pid
            ):  # the leader first, so that it does not continue without the others
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
            except BlockingIOError:  # boxd was stopped; other requests must not wait for it
                raise Refused("Busy", "boxd takes no connections; try again later") from None
            except (BrokenPipeError, ConnectionResetError):
                self._boxd.close()
                self._boxd = None  # it has ended: try again with a new one
                if again:
                    raise

    def _prestart_boxd(self, channel: socket.socket) -> None:
        """Forks boxd as the last step before init goes idle, because each page that init writes to afterwards exists twice. If the fork fails, the
        channel has no other end, and a later connection starts another boxd."""
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
        """Forks boxd, which takes the socket. Only from `run` on."""
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
    """Assigns the received files to stdin, stdout and stderr."""
    rest = iter(files)
    return [next(rest) if each else None for each in given]
