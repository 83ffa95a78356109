"""Pods that write more than they may, at full speed and in every way that hides it: each is evicted, and not long after its limit."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from sandpool.model.kinds import PERSISTENT_VOLUME_CLAIMS
from sandpool.node.disk.plan import allowance
from sandpool.node.disk.space import Level
from support.node.disk_hiding import BETWEEN, HIDING, MAKES_A_FILE, OF_THE_ENDED
from support.node.pods_node import Body, PodsNode, a_pods_node, runtime_of
from support.node.small_disk import MIB, small_disk
from support.simulated.kubelet_node import a_pod

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root"),
]
LIMIT = 300 * MIB
DISK = 2200 * MIB

WRITES = "import os; b = bytes(1 << 20)\n"
# Pieces of a third of the limit: each is out of every table of files as soon as it is written.
QUEUE = """
import array, socket, time
pair = socket.socketpair
kept = []
def send(s, f): s.sendmsg([b"y"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [f.fileno()]))])
def pieces(hide):
    for n in range(14):
        with open("/big", "wb", 0) as f:
            os.unlink("/big")
            for i in range(100): f.write(b)
            hide(f)
    time.sleep(1000)
"""
ATTEMPTS = {
    "one large file": WRITES + "f = open('/big', 'wb', 0)\nwhile True: f.write(b)",
    "a file without a name": WRITES + "f = open('/big', 'wb', 0); os.unlink('/big')\nwhile True: f.write(b)",
    "many small files": WRITES + "i = 0\nwhile True:\n  open(f'/f{i}', 'wb').write(b[:65536]); i += 1",
    "an unreadable folder": WRITES
    + "os.mkdir('/d'); f = open('/d/big', 'wb', 0); os.chmod('/d', 0)\nwhile True: f.write(b)",
    "files that move about": WRITES
    + "os.makedirs('/a/x'); os.mkdir('/b'); f = open('/a/x/big', 'wb', 0)\nif os.fork():\n  while True: f.write(b)\n"
    + "while True: os.rename('/a/x', '/b/x'); os.rename('/b/x', '/a/x')",
    "fallocate": WRITES
    + "f = open('/big', 'wb', 0)\ntry: os.posix_fallocate(f.fileno(), 0, 1800 << 20)\nexcept OSError: pass\n"
    + "while True: f.write(b)",
    "fallocate by its old name": WRITES
    + "import fcntl, struct\nf = open('/big', 'wb', 0)\n"
    + "try: fcntl.ioctl(f, 0x4030582A, struct.pack('hhqqiI4i', 0, 0, 0, 1800 << 20, 0, 0, 0, 0, 0, 0))\n"
    + "except OSError: pass\nwhile True: f.write(b)",
    "several processes": WRITES
    + "for n in range(3): os.fork()\nf = open(f'/big{os.getpid()}', 'wb', 0)\nwhile True: f.write(b)",
    "files in the queue of a socket": WRITES + QUEUE + "a, c = pair()\na.send(b'x')\npieces(lambda f: send(a, f))",
    "files in queues of sockets in queues": WRITES
    + QUEUE
    + """
def hide(f):
    a, c = pair(); d, e = pair(socket.AF_UNIX, socket.SOCK_DGRAM)
    send(a, f); send(d, c); kept.extend((a, d, e))
    c.close()
pieces(hide)
""",
    "files in connections that nobody accepts": WRITES
    + QUEUE
    + """
l = socket.socket(socket.AF_UNIX); l.bind("/l"); l.listen(100)
def hide(f):
    a = socket.socket(socket.AF_UNIX); a.connect("/l"); send(a, f); kept.append(a)
pieces(hide)
""",
    "a mapped file without a name": WRITES
    + "import mmap\nf = open('/big', 'wb+', 0); os.ftruncate(f.fileno(), 4 << 30); os.unlink('/big')\n"
    + "m = mmap.mmap(f.fileno(), 4 << 30); f.close()\nfor i in range(4096): m[i << 20:(i + 1) << 20] = b\n",
    **HIDING,
}


def writer(script: str, name: str = "main", limit: int | None = LIMIT, **fields: Any) -> Body:
    limits = {"memory": "256Mi", **({} if limit is None else {"ephemeral-storage": str(limit)})}
    return {
        "name": name, "image": "host", "command": ["python3", "-c", script], "resources": {"limits": limits}, **fields,
    }  # fmt: skip


def two(gives: str, keeps: str) -> Body:
    """A pod whose containers share a volume."""
    scratch = {"name": "scratch", "mountPath": "/scratch"}
    containers = [writer(gives, volumeMounts=[scratch]), writer(keeps, name="other", volumeMounts=[scratch])]
    return a_pod(containers=containers, volumes=[{"name": "scratch", "emptyDir": {}}])


@pytest.fixture(autouse=True)
def nothing_leaks() -> None:
    """The node is shared and keeps its threads; whether it leaves anything is looked at when it ends."""


@pytest.fixture(scope="module")
def left_as_found() -> Iterator[None]:
    def there() -> set[object]:
        ours = {thread for thread in threading.enumerate() if thread.name.startswith("sandpool")}
        return {*ours, *(child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE)}

    before = there()
    yield
    assert there() <= before


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory, left_as_found: None) -> AsyncIterator[PodsNode]:
    """One disk and one node for all: each test begins when nothing of the one before is left."""
    folder = tmp_path_factory.mktemp("limits")
    probe = await runtime_of("namespaces", folder / "try").probe()
    if not probe.available:
        pytest.skip(f"{probe.reason}: {probe.message}")
    with small_disk(folder, DISK) as disk:
        async with a_pods_node("namespaces", disk, reserve=64 * MIB) as found:
            await found.create(a_pod("first", containers=[writer("import time; time.sleep(1000)")]))
            await found.until(lambda pod: pod is not None and pod["status"].get("phase") == "Running", "first")
            await found.clear()  # what is made once and kept, such as the fork-server, is there
            yield found


@pytest_asyncio.fixture(loop_scope="module")
async def node(shared: PodsNode) -> AsyncIterator[PodsNode]:
    assert shared.guard is not None
    free = _free(shared.folder)
    shared.heard.heard.clear()
    shared.guard.evictions.update(limit=0, pressure=0)
    yield shared
    await shared.clear()
    async with asyncio.timeout(30):
        while _free(shared.folder) < free - 8 * MIB or shared.guard.disk.level is not Level.OK:
            await asyncio.sleep(0.02)


def evicted(pod: Body | None) -> bool:
    return pod is not None and pod["status"].get("reason") == "Evicted"


async def most_taken(node: PodsNode, done: asyncio.Event) -> int:
    """The most that was ever taken from the disk, while something happens."""
    first = least = _free(node.folder)
    while not done.is_set():
        least = min(least, _free(node.folder))
        await asyncio.sleep(0.005)
    return first - least


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


async def taken_until_evicted(node: PodsNode, body: Body) -> tuple[Body, int]:
    done = asyncio.Event()
    watching = asyncio.create_task(most_taken(node, done))
    try:
        await node.create(body)
        pod = await node.until(evicted)
    finally:
        done.set()
        taken = await watching
    return pod, taken


@pytest.mark.parametrize("how", ATTEMPTS)
async def test_whoever_writes_too_much_is_evicted_soon(node: PodsNode, how: str) -> None:
    free = _free(node.folder)
    pod, taken = await taken_until_evicted(node, a_pod(containers=[writer(ATTEMPTS[how])]))
    assert pod["status"]["phase"] == "Failed"
    assert pod["status"]["message"] == "Pod ephemeral local storage usage exceeds the total limit of containers 300Mi. "
    assert [one["state"]["terminated"]["exitCode"] for one in pod["status"]["containerStatuses"]] == [137]
    assert any(reason == "Evicted" for _, reason, *_ in node.heard.heard), node.heard.heard
    assert taken <= LIMIT + allowance(LIMIT), f"{taken >> 20} MiB"
    async with asyncio.timeout(30):  # and its files are gone, while the pod is still there to be looked at
        while _free(node.folder) < free - 32 * MIB:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("how", BETWEEN)
async def test_what_one_container_hides_with_another_counts(node: PodsNode, how: str) -> None:
    pod, taken = await taken_until_evicted(node, two(*BETWEEN[how]))
    assert pod["status"]["message"] == "Pod ephemeral local storage usage exceeds the total limit of containers 600Mi. "
    assert taken <= 2 * LIMIT + allowance(2 * LIMIT), f"{taken >> 20} MiB"


@pytest.mark.parametrize("kept", OF_THE_ENDED)
async def test_what_a_container_wrote_counts_after_its_end_while_anything_of_its_file_system_is_held(
    node: PodsNode, kept: str
) -> None:
    body = two(*OF_THE_ENDED[kept])
    scratch = {"name": "scratch", "mountPath": "/scratch"}
    body["spec"]["initContainers"] = [writer(MAKES_A_FILE, name="first", volumeMounts=[scratch])]
    body["spec"]["containers"][0]["volumeMounts"].append({"name": "scratch", "mountPath": "/f", "subPath": "f"})
    pod, taken = await taken_until_evicted(node, body)
    assert pod["status"]["message"] == 'Container main exceeded its local ephemeral storage limit "300Mi". '
    assert taken <= LIMIT + allowance(LIMIT), f"{taken >> 20} MiB"


async def test_what_a_container_wrote_is_gone_when_it_is_started_again(node: PodsNode) -> None:
    free = _free(node.folder)
    script = WRITES + "f = open('/usr/big', 'wb', 0)\nfor i in range(120): f.write(b)"
    await node.create(a_pod(containers=[writer(script)]))
    pod = await node.until(lambda pod: evicted(pod) or _restarts(pod) >= 4)
    assert not evicted(pod)
    assert _free(node.folder) > free - 2 * 130 * MIB


def _restarts(pod: Body | None) -> int:
    return sum(one["restartCount"] for one in (pod or {}).get("status", {}).get("containerStatuses", ()))


async def test_containers_and_volumes_count_together(node: PodsNode) -> None:
    half = WRITES + "f = open('{}', 'wb', 0)\nfor i in range({}): f.write(b)\nimport time; time.sleep(1000)"
    mount: dict[str, Any] = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    first = writer(half.format("/big", 280), **mount)
    second = writer(half.format("/scratch/big", 450), name="other", **mount)
    body = a_pod(containers=[first, second], volumes=[{"name": "scratch", "emptyDir": {}}])
    pod, taken = await taken_until_evicted(node, body)
    assert "total limit of containers 600Mi" in pod["status"]["message"]
    assert taken <= 740 * MIB  # what they write at most, and logs


async def test_an_empty_dir_has_its_own_limit(node: PodsNode) -> None:
    script = WRITES + "f = open('/scratch/big', 'wb', 0)\nwhile True: f.write(b)"
    container = writer(script, limit=None, volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}])
    body = a_pod(containers=[container], volumes=[{"name": "scratch", "emptyDir": {"sizeLimit": "100Mi"}}])
    pod, _ = await taken_until_evicted(node, body)
    assert pod["status"]["message"] == 'Usage of EmptyDir volume "scratch" exceeds the limit "100Mi". '


async def test_a_container_has_its_own_limit(node: PodsNode) -> None:
    free = "import time; time.sleep(1000)"
    body = a_pod(containers=[writer(ATTEMPTS["one large file"]), writer(free, name="other", limit=None)])
    pod, _ = await taken_until_evicted(node, body)
    assert pod["status"]["message"] == 'Container main exceeded its local ephemeral storage limit "300Mi". '


async def test_a_pod_that_takes_its_time_to_end_is_measured_too(node: PodsNode) -> None:
    """It writes in the grace that it has after it was deleted."""
    script = WRITES + (
        "import signal, time\ndef write(*_):\n  f = open('/big', 'wb', 0)\n  while True: f.write(b)\n"
        "signal.signal(signal.SIGTERM, write)\nprint('ready', flush=True)\ntime.sleep(1000)"
    )
    await node.create(a_pod(containers=[writer(script)], terminationGracePeriodSeconds=600))
    await node.until(lambda pod: pod is not None and pod["status"].get("phase") == "Running")
    async with asyncio.timeout(30):
        while "ready" not in await node.log():
            await asyncio.sleep(0.02)
    done = asyncio.Event()
    watching = asyncio.create_task(most_taken(node, done))
    await node.gone()
    done.set()
    assert await watching <= LIMIT + allowance(LIMIT)
    assert node.guard is not None
    assert node.guard.evictions["limit"] == 1


async def test_others_stay_and_holes_do_not_count(node: PodsNode) -> None:
    """A pod that only looks large, and one that is within its limit, run on beside one that is evicted."""
    sparse = "import os\nf = open('/hole', 'wb'); os.truncate('/hole', 1 << 40)\nprint('ready', flush=True)\nimport time; time.sleep(1000)"
    within = WRITES + "f = open('/big', 'wb', 0)\nfor i in range(200): f.write(b)\nimport time; time.sleep(1000)"
    for name, script in (("sparse", sparse), ("within", within)):
        await node.create(a_pod(name, containers=[writer(script)]))
        await node.until(lambda pod: pod is not None and pod["status"].get("phase") == "Running", name)
    await taken_until_evicted(node, a_pod(containers=[writer(ATTEMPTS["one large file"])]))
    assert node.guard is not None
    for uid in [(await node.get(name))["metadata"]["uid"] for name in ("sparse", "within")]:
        seen = next(one for one in node.guard.pods() if one.uid == uid)
        used = await seen.measure(thorough=True)
        assert used.total <= LIMIT
    assert [(await node.get(name))["status"]["phase"] for name in ("sparse", "within")] == ["Running", "Running"]
    assert node.guard.evictions == {"limit": 1, "pressure": 0}


async def test_nearly_full_the_largest_goes_and_others_stay(node: PodsNode) -> None:
    """Nobody is past a limit: it is the disk that has no more room. What others asked for is theirs."""
    some = (
        WRITES
        + "f = open('/big', 'wb', 0)\nfor i in range({}): f.write(b)\nprint('written', flush=True)\nimport time; time.sleep(1000)"
    )
    await node.create(a_pod("modest", containers=[writer(some.format(100), limit=1 << 40)]))
    await node.until(lambda pod: pod is not None and pod["status"].get("phase") == "Running", "modest")
    async with asyncio.timeout(30):
        while "written" not in await node.log("modest"):
            await asyncio.sleep(0.02)
    await node.create(a_pod(containers=[writer(ATTEMPTS["one large file"], limit=1 << 40)]))
    pod = await node.until(evicted)
    assert pod["status"]["message"].startswith("The node was low on resource: ephemeral-storage. ")
    assert (node.folder / "reserve").stat().st_blocks * 512 >= 64 * MIB
    assert (await node.get("modest"))["status"]["phase"] == "Running"
    assert node.guard is not None
    assert node.guard.evictions == {"limit": 0, "pressure": 1}


async def test_nearly_full_who_hides_it_in_a_claim_goes_and_others_stay(node: PodsNode) -> None:
    """A claim has no limit, but what is open there and has no name is found when the disk has no more room."""
    some = WRITES + "f = open('/big', 'wb', 0)\nfor i in range(100): f.write(b)\nimport time; time.sleep(1000)"
    await node.create(a_pod("modest", containers=[writer(some, limit=1 << 40)]))
    await node.until(lambda pod: pod is not None and pod["status"].get("phase") == "Running", "modest")
    await node.api.create(
        PERSISTENT_VOLUME_CLAIMS,
        {
            "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
        },
        "default",
    )
    script = WRITES + "f = open('/claim/big', 'wb', 0); os.unlink('/claim/big')\nwhile True: f.write(b)"
    container = writer(script, volumeMounts=[{"name": "claim", "mountPath": "/claim"}])
    volumes = [{"name": "claim", "persistentVolumeClaim": {"claimName": "c"}}]
    await node.create(a_pod(containers=[container], volumes=volumes))
    pod = await node.until(evicted)
    assert pod["status"]["message"].startswith("The node was low on resource: ephemeral-storage. ")
    assert (await node.get("modest"))["status"]["phase"] == "Running"
    assert node.guard is not None
    assert node.guard.evictions == {"limit": 0, "pressure": 1}


@pytest.mark.parametrize("kept", OF_THE_ENDED)
async def test_what_a_pod_wrote_is_free_after_its_end_whatever_another_pod_holds_of_it(
    node: PodsNode, kept: str
) -> None:
    claim = {"metadata": {"name": f"c-{list(OF_THE_ENDED).index(kept)}"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await node.api.create(PERSISTENT_VOLUME_CLAIMS, {**claim, "spec": spec}, "default")
    mounts = [{"name": "scratch", "mountPath": "/scratch"}]
    volumes = [
        {"name": "scratch", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}},
        {"name": "own", "emptyDir": {}},
    ]
    gives, keeps = OF_THE_ENDED[kept]
    keeps = keeps.replace('os.unlink("/scratch/f"); piece()', "pass")
    await node.create(a_pod("keeper", containers=[writer(keeps, volumeMounts=mounts)], volumes=volumes))
    await node.until(lambda pod: pod is not None and pod["status"].get("phase") == "Running", "keeper")
    free = _free(node.folder)
    own = {"name": "own", "mountPath": "/f", "subPath": "f"}
    first = writer(MAKES_A_FILE, name="first", volumeMounts=[{"name": "own", "mountPath": "/scratch"}])
    giver = writer(gives, volumeMounts=[*mounts, own])
    await node.create(
        a_pod("giver", initContainers=[first], containers=[giver], volumes=volumes, restartPolicy="Never")
    )
    await node.until(lambda pod: pod is not None and pod["status"].get("phase") == "Succeeded", "giver")
    await node.gone("giver")
    async with asyncio.timeout(20):
        while _free(node.folder) < free - 32 * MIB:
            await asyncio.sleep(0.02)
