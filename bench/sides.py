"""Runs the contenders on Kubernetes, one at a time on servers of their own: our controllers, the public Go controller, or none.

Each gets its own definitions, and the same hollow node. The Go controller gets the flags that its own guide calls optimal for many claims
(docs/performance-tuning.md of the version that is built: the sustained profile, word for word), or those of its manifests; ours get the
same numbers of workers, and keep the Events and annotations that the profile turns off. Leader election is off: a
controller that loses its lease on a busy machine would be measured as a slow one. The Go controller's account may do everything, so that
it lacks no permission.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.contenders import FLOOR, GO
from kube.build import RIVAL, definitions, find
from sandpool.load.series import OURS
from support.kube.access import NAMESPACE as SYSTEM
from support.kube.access import USER, create, install, write_kubeconfig
from support.kube.process import Controller, Process, controller
from support.kube.server import CRDS, KubeServer

BINARY = RIVAL
ACCOUNT = "go-controller"
WORKERS = (
    "--sandbox-concurrent-workers=200",
    "--sandbox-claim-concurrent-workers=150",
    "--sandbox-warm-pool-concurrent-workers=2",
)
OUR_FLAGS = ("--leader-elect=false", "--extensions", *WORKERS)
TUNED_FLAGS = (
    *("--leader-elect=false", "--extensions"),
    *("--api-connections=4", "--separate-watch-connection=true"),
    *WORKERS,
    *("--sandbox-warm-pool-replenish-delay=0", "--sandbox-warm-pool-max-refill-rate=100"),
    "--cache-label-selectors=true",
    *("--disable-claim-events=true", "--disable-claim-observability-annotations=true"),
)
"""The sustained profile of its guide, which is validated for any high throughput, but for the lease."""
SHIPPED_FLAGS = ("--leader-elect=false", "--extensions")
"""As its manifests have them but for the lease, everything else by default."""


@dataclass(frozen=True, slots=True)
class Acting:
    """A running controller: its user in the audit log, and its metrics page."""

    user: str
    metrics: str
    process: Process


def definitions_of(side: str) -> Path:
    """The CustomResourceDefinitions of a contender."""
    if side in (OURS, FLOOR):
        return CRDS
    found = definitions()
    if found is None:
        raise FileNotFoundError(f"the definitions of {BINARY} are missing: run `python tests/kube/build.py {BINARY}`")
    return found


@contextlib.contextmanager
def acting(side: str, server: KubeServer, directory: Path) -> Iterator[Acting]:
    with _ours(server, directory) if side in (OURS, FLOOR) else _go(side, server, directory) as found:
        yield found


@contextlib.contextmanager
def _ours(server: KubeServer, directory: Path) -> Iterator[Acting]:
    identity = install(server)
    with controller(directory, identity.kubeconfig, *OUR_FLAGS) as process:
        process.wait_ready()
        yield Acting(USER, _page(process), process)


def _page(process: Controller) -> str:
    (line,) = [line for line in process.lines("listening") if "/metrics" in line["pages"].split(",")]
    return f"http://{line['address']}/metrics"


@contextlib.contextmanager
def _go(side: str, server: KubeServer, directory: Path) -> Iterator[Acting]:
    binary = find(BINARY)
    if binary is None:
        raise FileNotFoundError(f"{BINARY} is not built: run `python tests/kube/build.py {BINARY}`")
    kubeconfig = _account(server)
    metrics, health = _free_port(), _free_port()
    flags = TUNED_FLAGS if side == GO else SHIPPED_FLAGS
    process = Process(
        directory / f"{side}.log",
        *flags,
        f"--metrics-bind-address=127.0.0.1:{metrics}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        env={"KUBECONFIG": str(kubeconfig)},
        program=str(binary),
    )
    try:
        yield Acting(f"system:serviceaccount:{SYSTEM}:{ACCOUNT}", f"http://127.0.0.1:{metrics}/metrics", process)
    finally:
        if process.code is None:
            process.stop()


def _account(server: KubeServer) -> Path:
    """A service account of its own, so that the audit log tells its requests from others'."""
    create(server, "/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    create(server, f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    binding = {
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}],
    }
    create(server, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    request = {"spec": {"expirationSeconds": 7200}}
    answer = server.request("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{ACCOUNT}/token", request)
    path = server.folder / "go.kubeconfig"
    write_kubeconfig(server, path, {"token": answer["status"]["token"]}, SYSTEM)
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
