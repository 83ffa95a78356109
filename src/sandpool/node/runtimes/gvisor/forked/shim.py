"""The shim of one gVisor sandbox: pid 1 above all its processes. It runs runsc and reports the results; when it exits, everything ends.

It has the privileges of the fork server and runs no code of the sandbox. It passes on the output of runsc unchanged, up to a limit. When the
main process is gone it exits, and the kernel kills all that it started. `main` is the program of gVisor's own fork server.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Any

from sandpool.node.runtimes.gvisor.forked import command, sockets
from sandpool.node.runtimes.gvisor.forked.command import (
    FIRST_GIVEN,
    Command,
    Place,
    dial_error,
    last_log_entry,
    runsc_error,
    start_error,
)
from sandpool.node.runtimes.gvisor.forked.runsc_root import user_namespace
from sandpool.node.runtimes.namespaces.forked import cgroups, frames, kernel, processes
from sandpool.node.runtimes.namespaces.forked.forkserver import main as serve
from sandpool.node.runtimes.namespaces.forked.frames import Message, Refused
from sandpool.node.runtimes.namespaces.forked.layers import Ids
from sandpool.node.runtimes.namespaces.forked.mount_sources import FLAGS
from sandpool.node.runtimes.namespaces.forked.rootfs import QUIET

ROOT = "pod"
BACKLOG = 128

Request = dict[str, Any]


class Shim:
    """Serves requests of the main process for one sandbox by running runsc."""

    def __init__(self, sock: socket.socket, request: Request) -> None:
        self._sock = sock
        self._directory: str = request["directory"]
        self._joined: list[str] = request["joined"]
        self._commands: dict[int, Command] = {}
        self._waiting: dict[int, Callable[[], object]] = {}  # callbacks, by the file descriptor that becomes readable
        self._poll = select.poll()
        self._sandbox = 0
        os.umask(0o022)  # the inherited one may be stricter
        self._place = self._prepare(request)
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        self._begin(request)

    def _prepare(self, request: Request) -> Place:
        cgroups.make(request["cgroups"])
        userns = command.out_of_the_way(user_namespace(request["ids"]))
        base: int = request["ids"][1] if request["ranged"] else 0
        ids = Ids(base, userns if request["ranged"] else 0)
        with frames.doing("prepare the sandbox", "Gvisor"):
            kernel.unshare(kernel.CLONE_NEWNS)
            kernel.mount("proc", "/proc", "proc", QUIET)
            for name in ("world", "memory", "egress", "meet", "state"):
                os.makedirs(f"{self._directory}/{name}", mode=0o755 if name == "meet" else 0o700, exist_ok=True)
            os.chown(f"{self._directory}/state", *ids.root)  # the others are mounted with mapped owners
        return Place(
            self._directory,
            f"{self._directory}/state",
            request["runsc"],
            ids,
            userns,
            request["ranged"],
            request["flags"],
        )

    def _begin(self, request: Request) -> None:
        """Starts the sandbox. Reports `started` when runsc says that it runs and the egress relay is ready."""
        os.chdir(f"{self._directory}/egress")  # the path of a unix socket must be short
        listener = sockets.listen("socket", BACKLOG)
        os.chdir("/")
        ready, said = os.pipe2(os.O_CLOEXEC)

        def done(code: int, _: str, log: str) -> None:
            if code:
                self.send({"refused": runsc_error(code, log)})
                os._exit(0)
            self._sandbox = int(_number(f"{self._directory}/state/{ROOT}.pid"))
            self.watch(ready, opened)

        def opened() -> None:
            self.unwatch(ready)
            if not os.read(ready, 1):
                self.send({"refused": ["Gvisor", "the relay of the sandbox ended; see the machine's Python"]})
                os._exit(0)
            os.close(ready)
            self.send({"started": True}, [listener.fileno()])
            listener.close()

        argv = ["run", "--detach", "--bundle=/bundle", f"--pid-file=/state/{ROOT}.pid", ROOT]
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.runsc(argv, done, request=request["root"], stdio=(null, said, null), joined=self._joined, network=True)
        os.close(said)
        os.close(null)

    def run(self) -> None:
        """Serves requests until the main process is gone or the sandbox has ended."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._poll.register(woken, select.POLLIN)
        self._poll.register(self._sock, select.POLLIN)
        self._reap()
        while True:
            ready = {file for file, _ in self._poll.poll()}
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 4096)
            for file in ready & self._waiting.keys():
                self._waiting[file]()
            if woken in ready:
                self._reap()
            if self._sock.fileno() in ready and not self._serve():
                return

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                ended = self._commands.pop(pid, None)
                if ended is not None:
                    ended.finish(status)
                elif pid == self._sandbox:
                    self.send({"gone": status})

    def _serve(self) -> bool:
        received = frames.receive(self._sock)
        if received is None:
            return False
        request, files = received
        try:
            self._carry_out(request, files)
        except Refused as refused:
            self.send({"id": request.get("id"), "refused": [refused.reason, refused.message]})
        except OSError as error:
            self.send({"id": request.get("id"), "refused": ["Gvisor", f"{request.get('do')}: {error.strerror}"]})
        finally:
            for file in files:
                os.close(file)
        return True

    def _carry_out(self, request: Request, files: list[int]) -> None:
        match request["do"]:
            case "start":
                self._start(request, files)
            case "exec":
                Execution(self, request).begin(files)
            case "run":
                self.runsc(request["argv"], lambda *end: self._answer(request["id"], *end))
            case "dial":
                self._dial(request["id"], request["port"])
            case "usage":
                seconds, _, _ = processes.usage(processes.listed(self._proc))
                self.send({"id": request["id"], "seconds": seconds})

    def _start(self, request: Request, files: list[int]) -> None:
        number, name = request["number"], request["name"]
        self._hold(request["volumes"])
        console = sockets.ConsoleSocket(f"{self._directory}/meet", name) if request["tty"] else None

        def done(code: int, _: str, log: str) -> None:
            given: list[int] = []
            try:
                if code:
                    raise Refused(*start_error(code, log, request["root"]["files"]["config.json"]["process"]["args"]))
                given = [console.take()] if console else []
            except Refused as refused:
                self.send({"id": request["id"], "refused": [refused.reason, refused.message]})
                self.runsc(["delete", "--force", name], _nothing)
                return
            finally:
                if console:
                    console.close()
            self.send({"id": request["id"], "who": last_log_entry(log).get("who")}, given)
            for file in given:
                os.close(file)
            self.runsc(["wait", name], lambda *end: self._ended(number, name, *end))

        argv = ["run", "--detach", "--bundle=/bundle", *(console.flags if console else ()), name]
        self.runsc(
            argv, done, request=request["root"], stdio=command.stdio(request["stdio"], files), joined=self._joined
        )

    def _ended(self, number: int, name: str, code: int, said: str, log: str) -> None:
        self.send({"ended": number, "said": said if code == 0 else "", "log": log})
        self.runsc(["delete", "--force", name], _nothing)

    def _dial(self, number: int, port: int) -> None:
        place = sockets.HandoverSocket(f"{self._directory}/meet", f"dial-{number}")

        def done(code: int, said: str, log: str) -> None:
            with place:
                if code:
                    self.send({"id": number, "refused": dial_error(port, code, log)})
                    return
                self.send({"id": number}, [place.accept().fileno()])

        self.runsc(["port-forward", f"--stream={place.path}", ROOT, str(port)], done)

    def _hold(self, volumes: list[Request]) -> None:
        """Creates the memory volumes that the containers share, as mounts of this process, which others cannot see."""
        with frames.doing("make a volume in memory"):
            for volume in volumes:
                directory = f"{self._directory}/memory/{volume['name']}"
                if os.path.isdir(directory):
                    continue
                os.mkdir(directory, 0o700)
                uid, gid = volume["owner"]
                size = f",size={volume['size']}" if volume["size"] else ""
                kernel.mount("tmpfs", directory, "tmpfs", FLAGS, f"mode=0777,uid={uid},gid={gid}{size}")

    def runsc(self, argv: list[str], done: Callable[[int, str, str], object], **more: Any) -> None:
        begun = command.begin(self._place, argv, done, **more)
        self._commands[begun.pid] = begun

    def _answer(self, number: int, code: int, said: str, log: str) -> None:
        self.send({"id": number, "code": code, "said": said[: 1 << 16], "log": log[:4096]})

    def watch(self, file: int, then: Callable[[], object]) -> None:
        self._waiting[file] = then
        self._poll.register(file, select.POLLIN)

    def unwatch(self, file: int) -> None:
        del self._waiting[file]
        self._poll.unregister(file)

    def send(self, message: Message, files: list[int] | None = None) -> None:
        frames.send(self._sock, message, files or ())


class Execution:
    """One exec in a running container, from its request to its exit. It has started once runsc has written its pid. If runsc exits before that,
    the request fails."""

    def __init__(self, shim: Shim, request: Request) -> None:
        self._shim = shim
        self._request = request
        self._asked = (
            True  # whether runsc's pid is still expected; after that `_started` is closed and its number may be reused
        )
        self._watched = self._running = False
        self._started, self._report = os.pipe2(os.O_CLOEXEC)
        self._master, self._slave = -1, -1

    def begin(self, files: list[int]) -> None:
        tty = self._request["tty"]
        command.readable_by_all(self._report)
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        opened = [null, self._report]
        try:
            if tty:
                self._master, self._slave = sockets.terminal_pair()
                opened.append(self._slave)
            given: list[int | None] = [self._slave] * 3 if tty else command.stdio(self._request["stdio"], files)
            passed = [self._report, *(null if each is None else each for each in given)]
            self._shim.watch(self._started, self._on_message)
            self._watched = True
            self._shim.runsc(
                self._argv(tty=tty), self._done, request={"files": {"process.json": self._request["process"]}},
                passed=passed, stdio=given if tty else None,
            )  # fmt: skip
        except BaseException:
            if not self._watched:
                os.close(self._started)
            raise
        finally:
            for file in opened:
                os.close(file)

    def _argv(self, *, tty: bool) -> list[str]:
        """Without a terminal, the command's files are passed separately from runsc's own, to which runsc writes its errors."""
        passing = [] if tty else [f"--pass-fd={FIRST_GIVEN + 1 + each}:{each}" for each in range(3)]
        number = f"--internal-pid-file=/proc/self/fd/{FIRST_GIVEN}"
        return ["exec", "--process=/bundle/process.json", number, *passing, self._request["name"]]

    def _on_message(self) -> None:
        self._asked = False
        self._shim.unwatch(self._started)
        inside = os.read(self._started, 32)
        os.close(self._started)
        if not inside.isdigit():
            return
        self._running = True
        self._shim.send({"id": self._request["id"], "pid": int(inside)}, [self._master] if self._master >= 0 else [])
        self._close_master()

    def _done(self, code: int, said: str, log: str) -> None:
        if self._asked:
            self._on_message()
        if self._running:
            self._shim.send({"ended": self._request["number"], "code": code})
            return
        process = self._request["process"]
        self._shim.send({"id": self._request["id"], "refused": start_error(code, log, process["args"], process["cwd"])})
        self._close_master()

    def _close_master(self) -> None:
        if self._master >= 0:
            os.close(self._master)
            self._master = -1


def _nothing(code: int, said: str, log: str) -> None:
    pass


def _number(path: str) -> str:
    """The number in a file that runsc has written. Follows no link."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        text = os.read(file, 32).decode("ascii", "replace")
    finally:
        os.close(file)
    return text if text.isdigit() else "0"


def run_shim(sock: socket.socket, request: Message, files: list[int]) -> bool:
    """Runs the shim until its sandbox ends. False: the request is for another kind of worker."""
    if request["do"] != "keep":
        return False
    Shim(sock, request).run()
    return True


def main() -> None:
    serve(extra=run_shim)


if __name__ == "__main__":
    main()
