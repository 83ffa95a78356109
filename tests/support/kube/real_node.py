"""A real node for a real cluster: containerd, kubelet, kube-scheduler, and the controllers that look after nodes.

Only for the namespaces that tests/node/run.py makes. There the kubelet answers anybody, because nobody else is there.
Nothing is left on the machine: files are in one folder, and the namespaces take the rest with them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kube.build import find as find_server
from node import build, probe
from node.run import ADDRESS, NAME, SERVICE, VARIABLE
from support.images.node_image import PAUSE, write_boxes
from support.kube.server import KubeServer

SUBNET = "10.89.0.0/24"
SOCKET = "/run/containerd/containerd.sock"
KUBELET_PORT = 10250
START_TIMEOUT = 90.0
CONTROLLERS = (
    "node-lifecycle-controller",
    "root-ca-certificate-publisher-controller",
    "persistentvolume-binder-controller",
    "deployment-controller",
    "replicaset-controller",
    "disruption-controller",
)

# As systemd does on a machine: starts a kubelet that ended again, but not while a file forbids it.
_SUPERVISOR = """
hold=$1; pid=$2; shift 2
while :; do
  "$@" & child=$!
  echo $child > $pid
  wait $child
  while [ -e $hold ]; do sleep 0.1; done
done
"""


class NodeFailed(Exception):
    """The node did not start; the message ends with the last lines of its logs."""


def found(name: str) -> Path:
    path = build.find(name) or find_server(name)
    if path is None:
        raise NodeFailed(f"{name} is missing: use `make test-node`")
    return path


def lacking() -> str:
    """Why there is no real node; empty when one can be started."""
    if VARIABLE not in os.environ:
        return probe.forbidden() or "a real node runs in namespaces of its own: use `make test-node`"
    absent = build.missing()
    return f"{', '.join(absent)} not found: use `make test-node`" if absent else ""


@dataclass
class RealNode:
    server: KubeServer
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, binary: Path, *flags: str, **environment: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(binary), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @contextlib.contextmanager
    def without_kubelet(self) -> Iterator[None]:
        """`kill -9`, and it stays away for as long as this lasts."""
        hold = self.folder / "kubelet.hold"
        hold.touch()
        os.kill(int((self.folder / "kubelet.pid").read_text()), signal.SIGKILL)
        try:
            yield
        finally:
            hold.unlink()

    def stop(self) -> None:
        """At once, whole process groups: what they leave behind goes with the namespaces."""
        for process in reversed(self.processes.values()):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def ctr(self, *arguments: str) -> str:
        command = [str(found("ctr")), "--address", SOCKET, "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    def tasks(self) -> dict[str, int]:
        """Containers that have a process now, with its pid."""
        rows = [line.split() for line in self.ctr("tasks", "ls").splitlines()[1:]]
        return {row[0]: int(row[1]) for row in rows if row[2] == "RUNNING"}

    def object(self) -> Any:
        return self.server.request("GET", f"/api/v1/nodes/{NAME}")

    def ready(self) -> bool:
        body = self.object()
        conditions = {one["type"]: one["status"] for one in body["status"].get("conditions", [])}
        return conditions.get("Ready") == "True" and not body["spec"].get("taints")

    def wait(self, what: str, holds: Any) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        trouble = ""
        while time.monotonic() < deadline:
            ended = [name for name, process in self.processes.items() if process.poll() is not None]
            if ended:
                raise NodeFailed(f"{', '.join(ended)} ended before {what}:\n{self.tails()}")
            try:
                if holds():
                    return
            except (OSError, subprocess.CalledProcessError) as error:
                trouble = str(error)
            time.sleep(0.1)
        raise NodeFailed(f"not within {START_TIMEOUT:.0f} s: {what} {trouble}\n{self.tails()}")

    def tails(self) -> str:
        logs = ((name, self.folder / f"{name}.log") for name in ("containerd", "kubelet"))
        return "\n".join(
            f"== {name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            for name, log in logs
            if log.exists()
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """Servers and a node."""

    server: KubeServer
    node: RealNode
    folder: Path


@contextlib.contextmanager
def real_node(server: KubeServer) -> Iterator[RealNode]:
    folder = Path(os.environ[VARIABLE]) / "node"
    folder.mkdir()
    node = RealNode(server, folder)
    try:
        start_runtime(node)
        for archive in (*write_boxes(_folder(folder / "images")), folder.parent / "controller.tar"):
            node.ctr("images", "import", str(archive))
        _start_cluster_parts(node)
        start_kubelet(node)
        node.wait("the node is ready", node.ready)
        yield node
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)


def start_runtime(node: RealNode) -> None:
    config = node.folder / "containerd.toml"
    config.write_text(_containerd(node.folder))
    plugins = _folder(node.folder / "cni-plugins")
    for name in ("bridge", "host-local"):
        if not (plugins / name).exists():
            (plugins / name).symlink_to(found(name))
    network = _folder(node.folder / "cni")
    (network / "10-box.conflist").write_text(json.dumps(_network(node.folder)))
    path = f"{build.cache_folder()}:{os.environ['PATH']}"  # where it looks for its shim
    node.start("containerd", found("containerd"), f"--config={config}", PATH=path)
    node.wait("containerd answers", lambda: node.ctr("version"))


def _containerd(folder: Path) -> str:
    """A container may not rank below its runtime for the kernel's memory killer: lowering that needs one capability more."""
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return f"""version = 3
root = '{folder / "containerd"}'
state = '/run/containerd'
disabled_plugins = ['io.containerd.nri.v1.nri']
[grpc]
address = '{SOCKET}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE}'
[{runtime}]
restrict_oom_score_adj = true
[{runtime}.cni]
bin_dirs = ['{folder / "cni-plugins"}']
conf_dir = '{folder / "cni"}'
use_internal_loopback = true
[{runtime}.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[{runtime}.containerd.runtimes.runc.options]
BinaryName = '{found("runc")}'
SystemdCgroup = false
"""


def _network(folder: Path) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "pods0",
        "isGateway": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(folder / "addresses"),
            "ranges": [[{"subnet": SUBNET}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "1.0.0", "name": "box", "plugins": [bridge]}


def _start_cluster_parts(node: RealNode) -> None:
    """What a cluster with nodes has beside what support/kube/server.py starts."""
    target = node.server.url.removeprefix("https://")
    service = ("-m", "support.kube.node_service", f"{SERVICE}:443", target)
    node.start("service", Path(sys.executable), *service, PYTHONPATH=str(Path(__file__).parents[2]))
    kubeconfig = node.server.kubeconfig
    quiet = ("--leader-elect=false", "--secure-port=0", "--profiling=false")
    node.start("scheduler", found("kube-scheduler"), f"--kubeconfig={kubeconfig}", *quiet)
    node.start(
        "node-controllers",
        found("kube-controller-manager"),
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(CONTROLLERS)}",
        f"--root-ca-file={node.server.ca}",
        *quiet,
    )


def start_kubelet(node: RealNode) -> None:
    config = node.folder / "kubelet.yaml"
    config.write_text(yaml.safe_dump(_kubelet(node.folder)))
    node.start(
        "kubelet",
        Path("/bin/sh"),
        "-c",
        _SUPERVISOR,
        "supervisor",
        str(node.folder / "kubelet.hold"),
        str(node.folder / "kubelet.pid"),
        str(found("kubelet")),
        f"--config={config}",
        f"--kubeconfig={node.server.kubeconfig}",
        f"--root-dir={_folder(node.folder / 'kubelet')}",
        f"--hostname-override={NAME}",
        f"--node-ip={ADDRESS}",
    )


def _kubelet(folder: Path) -> dict[str, Any]:
    nothing = {
        "memory.available": "1Mi",
        "nodefs.available": "0%",
        "nodefs.inodesFree": "0%",
        "imagefs.available": "0%",
    }
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "port": KUBELET_PORT,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{folder.parent.name}",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "enableControllerAttachDetach": False,
        "evictionHard": nothing,  # how full the machine is says nothing about us
        "failCgroupV1": False,
        "failSwapOn": False,
        "healthzPort": 0,
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "nodeStatusUpdateFrequency": "2s",
        "oomScoreAdj": 0,
        "podLogsDir": str(_folder(folder / "pod-logs")),
        "resolvConf": "",
        "volumePluginDir": str(_folder(folder / "volume-plugins")),
    }


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
