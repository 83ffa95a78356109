"""A machine to break out of: the real backend with its images, volumes and network, a neighbour, and targets around it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sandpool
from sandpool.base.clock import SystemClock
from sandpool.base.errors import NodeError
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import (
    Command,
    ContainerPort,
    ContainerSpec,
    Exit,
    PodStatus,
    Resources,
    Started,
    VolumeMount,
    Workload,
    WorkloadSpec,
)  # fmt: skip
from sandpool.node.images.store import ImageStore
from sandpool.node.network.node_network import NodeNetwork
from sandpool.node.network.policy import Policies
from sandpool.node.pods.backend import PodsBackend
from sandpool.node.pods.context import PodsOptions
from sandpool.node.volumes.spec import Claim, Content, EmptyDir, HostPath, VolumeOptions, VolumeSpec
from sandpool.node.volumes.store import VolumeStore
from support.api.policy_bodies import EVERYWHERE, LABELS, PUBLIC, network_policy
from support.escape.backends import BACKENDS, Kind
from support.escape.census import Census, census
from support.escape.internet import Internet
from support.escape.machine import SETTINGS, capable, facts, first_ones, settings
from support.escape.targets import Files, Listeners, Victim, file_handle, listening, queue, segment, victim
from support.node.streams import TestStreams

PATIENCE = 60.0
FOREVER = "exec sleep 1000000"
OPEN_LABELS = {"app": "open"}
QUICK = PodsOptions(first_retry=0.05, longest_retry=0.2, kept=0.2, linger=0.05, log_size=1_000_000, log_files=2)


NEIGHBOUR = """
import ctypes, os, socket, sys, threading
token, mark, port, abstract, key, shared, path = sys.argv[1:]
kept = ctypes.create_string_buffer(token.encode())
libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p
ctypes.memmove(libc.shmat(libc.shmget(int(key), ctypes.c_size_t(4096), 0o1666), None, 0), kept, len(token))
for name in (path, f"/dev/shm/{shared}"):
    with open(name, "w") as file: file.write(token)
    os.chmod(name, 0o644)
def serve(listener):
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(token.encode())
one = socket.socket(); one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); one.bind(("127.0.0.1", int(port))); one.listen()
two = socket.socket(socket.AF_UNIX); two.bind("\\0" + abstract); two.listen()
threading.Thread(target=serve, args=(two,), daemon=True).start()
serve(one)
"""


@dataclass
class World:
    name: str
    folder: Path
    token: str
    options: PodsOptions = QUICK
    news: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def kind(self) -> Kind:
        return BACKENDS[self.name]

    @property
    def isolates(self) -> bool:
        return self.kind.isolates

    async def open(self, stack: AsyncExitStack) -> None:
        self.mark = f"mark-{secrets.token_hex(6)}"
        self.first_mark = f"first-{secrets.token_hex(6)}"
        self.neighbour_token = f"neighbour-{secrets.token_hex(16)}"
        self.files = Files(self.folder / "targets", self.token)
        self.victim: Victim = stack.enter_context(victim(f"{self.token} {self.mark}", self.files.secret))
        self.listeners: Listeners = await stack.enter_async_context(listening(self.token, self.files.folder))
        self.segment: int = stack.enter_context(segment(self.token))
        self.queue: str = stack.enter_context(queue(self.token))
        self.internet = Internet(self.listeners.port)
        self.settings = settings()
        (self.folder / "kept").mkdir(mode=0o755)
        await self._open_parts(stack)

    async def _open_parts(self, stack: AsyncExitStack) -> None:
        clock, data = SystemClock(), self.folder / "data"
        data.mkdir(mode=0o700)
        images = ImageStore(data / "images", clock)
        await images.open()
        stack.push_async_callback(images.close)
        options = VolumeOptions(host_paths=(self.files.folder / "shared", self.files.folder / "read-only"))
        self.volumes = VolumeStore(data / "volumes", options)
        stack.push_async_callback(self.volumes.close)
        policies = Policies()
        policies.put(network_policy(PUBLIC, selector={"matchLabels": LABELS}))
        policies.put(network_policy(EVERYWHERE, name="open", selector={"matchLabels": OPEN_LABELS}))
        net = self.internet
        network = NodeNetwork(policies, clock, resolve=net.resolve, connect=net.connect, ask_route=net.route)
        stack.push_async_callback(network.close)
        self.installation = f"esc{os.getpid()}-{secrets.token_hex(3)}"
        self.runtime = self.kind.make(data / "runtime", self.installation)
        self.backend = PodsBackend(self.runtime, images, self.volumes, network, clock, data / "pods", self.options)
        await self.backend.open(lambda uid: self.news.set())
        stack.push_async_callback(self.backend.close)

    # Pods

    def workload(self, command: Sequence[str], *, labels: Mapping[str, str] = LABELS, limits: Mapping[str, str] = {},
                 mounts: Mapping[str, VolumeMount] = {}, volumes: Sequence[VolumeSpec] = (), port: int = 0,
                 env: Mapping[str, str] = {}, message: str = "") -> Workload:  # fmt: skip
        number = next(self._numbers)
        spec = ContainerSpec(
            name="main", image="host", command=tuple(command), resources=Resources(limits=dict(limits)),
            ports=(ContainerPort(container_port=port),) if port else (), volume_mounts=tuple(mounts.values()),
            termination_message_path=message,
        )  # fmt: skip
        uid = Uid(f"{os.getpid():08d}-0000-4000-8000-{number:012x}")
        key = Key("team", f"pod-{number}")
        return Workload(
            uid, key, WorkloadSpec(containers=(spec,)), labels=labels, env={"main": env}, volumes=tuple(volumes)
        )

    async def until(self, uid: Uid, condition: Callable[[PodStatus | None], bool]) -> PodStatus | None:
        async with asyncio.timeout(PATIENCE):
            while not condition(self.backend.pod_status(uid)):
                self.news.clear()
                await self.news.wait()
        return self.backend.pod_status(uid)

    @contextlib.asynccontextmanager
    async def pod(self, work: Workload) -> AsyncIterator[Uid]:
        await self.backend.start_pod(work)
        try:
            await self.until(
                work.uid, lambda seen: seen is not None and isinstance(seen.containers[0].state, Started | Exit)
            )
            yield work.uid
        finally:
            await self.gone(work.uid)

    async def gone(self, uid: Uid) -> None:
        await self.backend.stop_pod(uid, 0)
        await self.until(uid, lambda seen: seen is None)

    async def say(self, uid: Uid, *argv: str, stdin: bytes = b"") -> tuple[int, str]:
        streams = TestStreams(stdin)
        async with asyncio.timeout(PATIENCE):
            end = await self.backend.exec(uid, "main", Command(argv), streams)
        return end.code, (bytes(streams.out[1]) + bytes(streams.out[2])).decode(errors="replace")

    async def shell(self, uid: Uid, script: str) -> tuple[int, str]:
        return await self.say(uid, "sh", "-c", script)

    async def python(self, uid: Uid, program: str, *arguments: str) -> tuple[int, str]:
        return await self.say(uid, "python3", "-", *arguments, stdin=program.encode())

    # The neighbour

    @contextlib.asynccontextmanager
    async def neighbour(self) -> AsyncIterator[Uid]:
        self.port = _free_port()
        self.abstract = f"{self.mark}-neighbour"
        self.key = secrets.randbelow(1 << 30) + 1
        self.shared = f"{self.mark}-neighbour"
        self.neighbour_file = "/tmp/secret" if self.isolates else str(self.files.folder / "neighbour")
        words = (
            self.neighbour_token,
            self.mark,
            str(self.port),
            self.abstract,
            str(self.key),
            self.shared,
            self.neighbour_file,
        )
        work = self.workload(
            ("python3", "-c", NEIGHBOUR, *words), port=self.port, env={"SECRET": self.neighbour_token},
            volumes=(VolumeSpec("empty", EmptyDir()),),
            mounts={"empty": VolumeMount(name="empty", mount_path="/mnt/empty")} if self.isolates else {},
        )  # fmt: skip
        async with self.pod(work) as uid:
            seen = self.backend.pod_status(uid)
            assert seen is not None
            self.address = seen.address
            await self._greeted(uid)
            try:
                yield uid
            finally:
                if not self.isolates:
                    self._take_away()

    async def _greeted(self, uid: Uid) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(NodeError, OSError):
                    if await self.greet(uid) == self.neighbour_token:
                        return
                await asyncio.sleep(0.01)

    async def greet(self, uid: Uid) -> str:
        """What the neighbour says to one who connects from outside."""
        async with asyncio.timeout(PATIENCE):
            with await self.backend.dial(uid, self.port) as sock:
                return (await asyncio.get_running_loop().sock_recv(sock, 4096)).decode()

    def _take_away(self) -> None:
        """Without isolation it left its things on the machine."""
        libc = ctypes.CDLL(None)
        libc.shmctl(libc.shmget(self.key, ctypes.c_size_t(0), 0), 0, None)
        Path("/dev/shm", self.shared).unlink(missing_ok=True)

    # The attacker

    def attacker(self, claim: str = "shared-claim") -> Workload:
        if not self.isolates:
            return self.workload(("sh", "-c", FOREVER))
        folder = self.files.folder
        volumes = {
            "config": Content({"file": b"config", "folder/file": b"config"}),
            "secret": Content({"file": b"mounted"}, secret=True),
            "host": HostPath(str(folder / "read-only")),
            "shared": HostPath(str(folder / "shared")),
            "claim": Claim("team", "claim", claim),
            "empty": EmptyDir(),
            "memory": EmptyDir(memory=True, size=1 << 20),
        }
        mounts = {name: VolumeMount(name=name, mount_path=f"/mnt/{name}", read_only=name == "host") for name in volumes}
        return self.workload(
            ("sh", "-c", FOREVER),
            mounts=mounts,
            volumes=[VolumeSpec(name, source) for name, source in volumes.items()],  # type: ignore[arg-type]
        )

    def targets(self) -> dict[str, Any]:
        """As the hostile program is told. Without isolation the same names stand for things that the test may lose."""
        folder, found = self.files.folder, self.folder.stat()
        inside = self.isolates
        mounts = ["/mnt/config", "/mnt/host", "/mnt/shared", "/mnt/claim", "/mnt/empty", "/mnt/memory"]
        places = ["/mnt/shared", "/mnt/host"] if inside else [str(folder / "shared"), str(folder / "read-only")]
        pods = self.folder / "data" / "pods" / self.name
        return {
            "tokens": [self.token[::-1], self.neighbour_token[::-1]],
            "mark": self.mark,
            "folder": str(self.folder),
            "secret": str(self.files.secret),
            "victim_file": str(self.files.victim),
            "neighbour_files": [self.neighbour_file, *map(str, pods.rglob("secret"))] if not inside else [
                str(path) for path in (self.folder / "data").rglob("secret")
            ],
            "scratch": "/tmp" if inside else str(folder / "scratch"),
            "mounts": mounts if inside else [str(folder)],
            "installed": [sys.executable, str(Path(sandpool.__file__).parents[1])],
            "machine_mounts": machine_mounts(),
            "read_only": ["/mnt/config", "/mnt/secret", "/mnt/host"] if inside else [str(folder / "read-only")],
            "links": [f"{place}/{name}" for place in places for name in ("absolute", "relative")],
            "programs": ["/usr/bin/env", "/usr/bin/dash"] if inside else [str(path) for path in self.files.programs],
            "new_program": f"/usr/local/bin/{self.mark}" if inside else str(folder / "programs" / self.mark),
            "handle": file_handle(self.files.secret),
            "device": [os.major(found.st_dev), os.minor(found.st_dev)],
            "victim": self.victim.process.pid,
            "victim_address": self.victim.address,
            "victim_spare": self.victim.spare,
            "neighbour": 0,
            "init": 1 if inside else self.victim.process.pid,
            "scan": [] if inside else [self.victim.process.pid],
            "spared": int(Path("/proc/self/oom_score_adj").read_text()) - 1,
            "segments": [self.segment, self.key],
            "shared": self.shared,
            "queue": self.queue,
            "port": self.listeners.port,
            "api_port": self.listeners.api_port,
            "datagram_port": self.listeners.datagram_port,
            "pod_address": self.address,
            "pod_port": self.port,
            "socket_file": str(folder / "socket"),
            "abstract": [self.listeners.abstract, self.abstract],
            "first_mark": self.first_mark,
            "machine": facts(),
            "settings": list(SETTINGS) if inside else [str(self.files.victim)],
            "kept_folders": ["/mnt/claim", "/mnt/empty", "/mnt/memory"] if inside else [str(self.folder / "kept")],
            "proxy_port": self.options.egress_port if inside else 0,
        }  # fmt: skip

    def damage(self) -> str:
        """What the machine noticed since it was last asked."""
        wrong = [self.files.damage(), self.victim.hits()]
        if self.listeners.heard:
            wrong.append(f"{self.listeners.heard} connections reached the machine's listeners")
        if self.internet.dialled:
            wrong.append(f"the proxy dialled {', '.join(self.internet.dialled)}")
        if Path("/usr/local/bin", self.mark).exists():
            wrong.append("there is a new program on the machine")
        wrong += [f"{name} was changed" for name, value in settings().items() if self.settings[name] != value]
        wrong += [
            f"{path} has capabilities" for path in capable((self.folder / "kept", self.folder / "data" / "volumes"))
        ]
        wrong += first_ones(self.first_mark)
        self.listeners.heard = 0
        self.internet.dialled.clear()
        return "; ".join(each for each in wrong if each)

    def count(self) -> Census:
        return census(self.folder, self.installation)


def machine_mounts() -> list[str]:
    """Where only the machine has something mounted."""
    usual = {"/", "/usr", "/proc", "/dev", "/dev/pts", "/dev/shm"}
    return sorted({line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()} - usual)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.asynccontextmanager
async def a_world(name: str, folder: Path, token: str, options: PodsOptions = QUICK) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        world = World(name, folder, token, options)
        await world.open(stack)
        yield world
