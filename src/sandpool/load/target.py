"""The cluster under load: how to connect to it, what it reports about itself, and its metrics pages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from sandpool.base.clock import Clock
from sandpool.base.errors import SandpoolError
from sandpool.kube.config import Cluster, Config
from sandpool.kube.credentials import Credential, Fixed, Source, credentials_for
from sandpool.kube.kubeconfig import load_kubeconfig
from sandpool.kube.local_discovery import Running
from sandpool.kube.requests import HttpRequest
from sandpool.kube.transport import Limits, Transport
from sandpool.load.counts import FAMILIES, Page, Samples, read_samples
from sandpool.load.errors import LoadError
from sandpool.load.machine import Usage, is_durable, usage
from sandpool.sdk.config import Config as WayIn

_METRICS = HttpRequest("GET", "/metrics")
_VERSION = HttpRequest("GET", "/version")


@dataclass(frozen=True, slots=True)
class Target:
    config: Config
    kubeconfig: Path  # that it was read from
    context: str = ""
    running: Running | None = None  # a local cluster, whose process can be looked at
    fresh: bool = False
    metrics: tuple[str, ...] = ()  # pages of controllers, besides the server's own

    @classmethod
    def of(cls, kubeconfig: Path, context: str = "", **more: Any) -> Target:
        return cls(load_kubeconfig([kubeconfig], context=context), kubeconfig, context, **more)

    def inside(self, router: str) -> WayIn:
        """The router for sandboxes: the one that was named, or the local cluster's own."""
        known = router or (self.running.router if self.running else "")
        return WayIn(kubeconfig=self.kubeconfig, context=self.context, router=known)

    def source(self, clock: Clock) -> Source:
        return credentials_for(self.config, clock, os.environ)

    def transport(self, source: Source, connections: int, timeout: float) -> Transport:
        return Transport(
            self.config.cluster,
            source,
            Limits(request=timeout, write=timeout, connect=timeout, connections=connections),
        )

    def as_dict(self) -> dict[str, Any]:
        """What is known about the cluster without a request."""
        if self.running is None:
            return {"cluster": self.config.cluster.server, "backend": None, "durable": None}
        durable, kind = is_durable(self.running.data_dir)
        return {
            "cluster": "temporary local cluster" if self.fresh else "local cluster",
            "backend": self.running.backend,
            "durable": durable,
            "file_system": kind,
            "server_version": self.running.version,
        }


@dataclass(slots=True)
class Snapshot:
    """Counters and resource usage of the cluster at one moment."""

    pages: dict[str, Samples] = field(default_factory=dict)
    server: Usage | None = None
    missing: str = ""


class Scraper:
    """Reads the metrics pages. One that cannot be read is left out, and the cause is kept."""

    def __init__(self, target: Target, transport: Transport) -> None:
        self._target = target
        self._pages = {"API server": (transport, _METRICS)}
        self._others: list[Transport] = []
        for address in target.metrics:
            page, call = _page(address)
            self._others.append(page)
            self._pages[address] = (page, call)
        self._transport = transport

    async def close(self) -> None:
        for transport in self._others:
            await transport.close()

    async def version(self) -> str:
        try:
            as_dict = msgspec.json.decode(await self._transport.send(_VERSION))
            return str(as_dict.get("gitVersion", ""))
        except (SandpoolError, msgspec.DecodeError, AttributeError):
            return ""

    async def take(self) -> Snapshot:
        snapshot = Snapshot(server=usage(self._target.running.pid) if self._target.running else None)
        for name, (transport, call) in self._pages.items():
            try:
                page = await transport.send(call)
            except SandpoolError as error:
                if name in self._target.metrics:
                    raise LoadError(f"--metrics {name}: {error}") from error
                snapshot.missing = f"/metrics of the API server: {error}"
                continue
            snapshot.pages[name] = read_samples(page.decode("utf-8", "replace"), FAMILIES)
        return snapshot


def pages(before: Snapshot, after: Snapshot) -> list[Page]:
    return [Page(name, before.pages.get(name, {}), samples) for name, samples in after.pages.items()]


def processes(taken: Sequence[Page]) -> dict[str, dict[str, float]]:
    """CPU and memory of the processes that serve the pages, if the pages have them."""
    found = {}
    for page in taken:
        cpu = [sum(each.get("process_cpu_seconds_total", {}).values()) for each in (page.before, page.after)]
        memory = sum(page.after.get("process_resident_memory_bytes", {}).values())
        if memory:
            found[page.source] = {"cpu_s": round(cpu[1] - cpu[0], 3), "resident_bytes": memory}
    return found


def _page(address: str) -> tuple[Transport, HttpRequest]:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LoadError(f"--metrics {address} is not the address of a page, such as http://127.0.0.1:8080/metrics")
    call = HttpRequest("GET", parts.path or "/metrics")
    return Transport(Cluster(f"{parts.scheme}://{parts.netloc}"), Fixed(Credential()), Limits()), call
