"""Programs that remember a claim's name only once its POST has returned, as PerfKitBenchmarker's load generator does, miss no claim.

One thread watches from the beginning and ignores whatever it does not know the name of; others make claims, and note each name when the answer has come.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.product.cluster import Cluster, claim, running_cluster

kubernetes = pytest.importorskip("kubernetes")

CLAIMS = ("extensions.agents.x-k8s.io", "v1beta1", "default", "sandboxclaims")
TOTAL, RATE, WORKERS = 100, 20.0, 32
LONGEST = 60.0  # seconds until a claim counts as lost


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("cluster") / "data"
    with running_cluster(data, "--backend", "hollow", "--pool", f"python={TOTAL // 2}") as cluster:
        yield cluster


class Generator:
    def __init__(self, kubeconfig: Path) -> None:
        self.known: set[str] = set()
        self.ready: dict[str, dict[str, str]] = {}  # the claims that were seen to be Ready, with their annotations then
        self.unknown = 0  # events of claims that were Ready before their names were known
        self._changed = threading.Condition()
        self._configuration = kubernetes.client.Configuration()
        self._configuration.connection_pool_maxsize = WORKERS
        kubernetes.config.load_kube_config(str(kubeconfig), client_configuration=self._configuration)
        self._watch = kubernetes.watch.Watch()

    def follow(self, begun: threading.Event, ended: threading.Event) -> None:
        with kubernetes.client.ApiClient(self._configuration) as client:
            api = kubernetes.client.CustomObjectsApi(client)
            begun.set()
            for event in self._watch.stream(api.list_namespaced_custom_object, *CLAIMS, timeout_seconds=180):
                if ended.is_set():
                    break
                self._heard(event["object"])
            client.rest_client.pool_manager.clear()

    def _heard(self, found: dict[str, Any]) -> None:
        conditions = found.get("status", {}).get("conditions", ())
        if not any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
            return
        name = found["metadata"]["name"]
        with self._changed:
            if name not in self.known:
                self.unknown += 1
            elif name not in self.ready:
                self.ready[name] = found["metadata"].get("annotations", {})
                self._changed.notify_all()

    def run(self) -> None:
        begun, ended = threading.Event(), threading.Event()
        watcher = threading.Thread(target=self.follow, args=(begun, ended))
        watcher.start()
        begun.wait()
        with kubernetes.client.ApiClient(self._configuration) as client:
            api = kubernetes.client.CustomObjectsApi(client)

            def make(name: str) -> None:
                api.create_namespaced_custom_object(*CLAIMS, claim(name))
                with self._changed:
                    self.known.add(name)

            start = time.monotonic()
            with ThreadPoolExecutor(WORKERS) as workers:
                made = []
                for number in range(TOTAL):
                    time.sleep(max(0.0, start + number / RATE - time.monotonic()))
                    made.append(workers.submit(make, f"claim-{number}"))
            for one in made:
                one.result()
            with self._changed:
                self._changed.wait_for(lambda: self.ready.keys() == self.known, LONGEST)
            ended.set()
            api.create_namespaced_custom_object(*CLAIMS, claim("last"))  # the watch comes to its end by an event
            watcher.join()
            client.rest_client.pool_manager.clear()


def test_a_load_generator_that_remembers_names_late_loses_none(cluster: Cluster) -> None:
    generator = Generator(cluster.data_dir / "kubeconfig")
    generator.run()
    assert len(generator.known) == TOTAL
    assert sorted(generator.known - generator.ready.keys()) == [], f"{generator.unknown} events came too early"
    for name, notes in generator.ready.items():
        assert notes.get("agents.x-k8s.io/sandbox-name"), name
        assert notes.get("agents.x-k8s.io/controller-first-observed-at"), name
