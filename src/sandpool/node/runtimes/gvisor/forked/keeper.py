"""Pid 1 above all processes of one sandbox: runs runsc for it, tells what became of it, and ends everything by ending.

It has the powers of the fork-server and runs nothing of the sandbox's; what it hears from runsc it passes on as it is, with a
limit. When the main process is gone, so is it, and by the kernel all that it started.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Any

from sandpool.node.runtimes.gvisor.forked import command, terminals
from sandpool.node.runtimes.gvisor.forked.command import Command, Place
from sandpool.node.runtimes.gvisor.forked.execution import Execution
from sandpool.node.runtimes.gvisor.forked.ids import user_namespace
from sandpool.node.runtimes.gvisor.forked.words import explain, last_words, not_connected, refusal
from sandpool.node.runtimes.namespaces.forked import cgroup_files, frames, kernel, processes
from sandpool.node.runtimes.namespaces.forked.frames import Message, Refused
from sandpool.node.runtimes.namespaces.forked.kernel_files import QUIET
from sandpool.node.runtimes.namespaces.forked.layers import Ids
from sandpool.node.runtimes.namespaces.forked.volumes import FLAGS

ROOT = "pod"
BACKLOG = 128

Order = dict[str, Any]


class Keeper:
    def __init__(self, sock: socket.socket, order: Order) -> None:
        self._sock = sock
        self._folder: str = order["folder"]
        self._joined: list[str] = order["joined"]
        self._commands: dict[int, Command] = {}
        self._waiting: dict[int, Callable[[], object]] = {}  # what to do when these files can be read
        self._poll = select.poll()
        self._sandbox = 0
        os.umask(0o022)  # whoever started us may have a stricter one
        self._place = self._prepare(order)
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        self._begin(order)

    def _prepare(self, order: Order) -> Place:
        cgroup_files.make(order["cgroups"])
        userns = command.out_of_the_way(user_namespace(order["ids"]))
        base: int = order["ids"][1] if order["ranged"] else 0
        ids = Ids(base, userns if order["ranged"] else 0)
        with frames.doing("prepare the sandbox", "Gvisor"):
            kernel.unshare(kernel.CLONE_NEWNS)
            kernel.mount("proc", "/proc", "proc", QUIET)
            for name in ("world", "memory", "egress", "meet", "state"):
                os.makedirs(f"{self._folder}/{name}", mode=0o755 if name == "meet" else 0o700, exist_ok=True)
            os.chown(f"{self._folder}/state", *ids.root)  # the others are seen through mounts that map owners
        return Place(
            self._folder, f"{self._folder}/state", order["runsc"], ids, userns, order["ranged"], order["flags"]
        )

    def _begin(self, order: Order) -> None:
        """The sandbox itself. Told when runsc says that it runs and the way out is open."""
        os.chdir(f"{self._folder}/egress")  # a socket's path must be short
        listener = terminals.listen("socket", BACKLOG)
        os.chdir("/")
        ready, said = os.pipe2(os.O_CLOEXEC)

        def done(code: int, _: str, log: str) -> None:
            if code:
                self.tell({"refused": refusal(code, log)})
                os._exit(0)
            self._sandbox = int(_number(f"{self._folder}/state/{ROOT}.pid"))
            self.when(ready, opened)

        def opened() -> None:
            self.forget(ready)
            if not os.read(ready, 1):
                self.tell({"refused": ["Gvisor", "the relay of the sandbox ended; see the machine's Python"]})
                os._exit(0)
            os.close(ready)
            self.tell({"started": True}, [listener.fileno()])
            listener.close()

        argv = ["run", "--detach", "--bundle=/bundle", f"--pid-file=/state/{ROOT}.pid", ROOT]
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.runsc(argv, done, order=order["root"], stdio=(null, said, null), joined=self._joined, network=True)
        os.close(said)
        os.close(null)

    def run(self) -> None:
        """Until the main process is gone or the sandbox has ended."""
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
                    self.tell({"gone": status})

    def _serve(self) -> bool:
        received = frames.receive(self._sock)
        if received is None:
            return False
        order, files = received
        try:
            self._carry_out(order, files)
        except Refused as refused:
            self.tell({"id": order.get("id"), "refused": [refused.reason, refused.message]})
        except OSError as error:
            self.tell({"id": order.get("id"), "refused": ["Gvisor", f"{order.get('do')}: {error.strerror}"]})
        finally:
            for file in files:
                os.close(file)
        return True

    def _carry_out(self, order: Order, files: list[int]) -> None:
        match order["do"]:
            case "start":
                self._start(order, files)
            case "exec":
                Execution(self, order).begin(files)
            case "run":
                self.runsc(order["argv"], lambda *end: self._answer(order["id"], *end))
            case "dial":
                self._dial(order["id"], order["port"])
            case "usage":
                seconds, _, _ = processes.usage(processes.listed(self._proc))
                self.tell({"id": order["id"], "seconds": seconds})

    def _start(self, order: Order, files: list[int]) -> None:
        number, name = order["number"], order["name"]
        self._hold(order["volumes"])
        console = terminals.Console(f"{self._folder}/meet", name) if order["tty"] else None

        def done(code: int, _: str, log: str) -> None:
            given: list[int] = []
            try:
                if code:
                    raise Refused(*explain(code, log, order["root"]["files"]["config.json"]["process"]["args"]))
                given = [console.take()] if console else []
            except Refused as refused:
                self.tell({"id": order["id"], "refused": [refused.reason, refused.message]})
                self.runsc(["delete", "--force", name], _nothing)
                return
            finally:
                if console:
                    console.close()
            self.tell({"id": order["id"], "who": last_words(log).get("who")}, given)
            for file in given:
                os.close(file)
            self.runsc(["wait", name], lambda *end: self._ended(number, name, *end))

        argv = ["run", "--detach", "--bundle=/bundle", *(console.flags if console else ()), name]
        self.runsc(argv, done, order=order["root"], stdio=command.stdio(order["stdio"], files), joined=self._joined)

    def _ended(self, number: int, name: str, code: int, said: str, log: str) -> None:
        self.tell({"ended": number, "said": said if code == 0 else "", "log": log})
        self.runsc(["delete", "--force", name], _nothing)

    def _dial(self, number: int, port: int) -> None:
        place = terminals.Meeting(f"{self._folder}/meet", f"dial-{number}")

        def done(code: int, said: str, log: str) -> None:
            with place:
                if code:
                    self.tell({"id": number, "refused": not_connected(port, code, log)})
                    return
                self.tell({"id": number}, [place.accept().fileno()])

        self.runsc(["port-forward", f"--stream={place.path}", ROOT, str(port)], done)

    def _hold(self, volumes: list[Order]) -> None:
        """Volumes in memory that the containers share: mounts of this process, which nobody else sees."""
        with frames.doing("make a volume in memory"):
            for volume in volumes:
                folder = f"{self._folder}/memory/{volume['name']}"
                if os.path.isdir(folder):
                    continue
                os.mkdir(folder, 0o700)
                uid, gid = volume["owner"]
                size = f",size={volume['size']}" if volume["size"] else ""
                kernel.mount("tmpfs", folder, "tmpfs", FLAGS, f"mode=0777,uid={uid},gid={gid}{size}")

    def runsc(self, argv: list[str], done: Callable[[int, str, str], object], **more: Any) -> None:
        begun = command.begin(self._place, argv, done, **more)
        self._commands[begun.pid] = begun

    def _answer(self, number: int, code: int, said: str, log: str) -> None:
        self.tell({"id": number, "code": code, "said": said[: 1 << 16], "log": log[:4096]})

    def when(self, file: int, then: Callable[[], object]) -> None:
        self._waiting[file] = then
        self._poll.register(file, select.POLLIN)

    def forget(self, file: int) -> None:
        del self._waiting[file]
        self._poll.unregister(file)

    def tell(self, message: Message, files: list[int] | None = None) -> None:
        frames.send(self._sock, message, files or ())


def _nothing(code: int, said: str, log: str) -> None:
    pass


def _number(path: str) -> str:
    """Of a file that runsc has written; no link is followed."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        text = os.read(file, 32).decode("ascii", "replace")
    finally:
        os.close(file)
    return text if text.isdigit() else "0"
