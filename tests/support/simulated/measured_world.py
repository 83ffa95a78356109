"""Caches that are filled by hand, with Measures on them: what is seen, and when, is the test's own doing."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.metrics.controller_metrics import ControllerMetrics
from sandpool.loop.cache import Cache
from sandpool.model import labels
from sandpool.model.claim import BoundSandbox, SandboxClaim, SandboxClaimSpec, SandboxClaimStatus
from sandpool.model.claim import PoolRef as ClaimsPoolRef
from sandpool.model.codec import convert
from sandpool.model.conditions import put
from sandpool.model.kinds import CLAIMS, POOLS, SANDBOXES
from sandpool.model.metadata import Key, Metadata, Revision, Uid
from sandpool.model.pool import SandboxWarmPool, SandboxWarmPoolSpec, TemplateRef
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.metrics import Metrics
from support.clocks.manual_clock import START, ManualClock
from support.simulated.claim_parts import condition, member_body

T = TypeVar("T", SandboxClaim, Sandbox, SandboxWarmPool)


class World:
    def __init__(self, *, filled: bool = True, **options: Any) -> None:
        self.claims: Cache[SandboxClaim] = Cache(CLAIMS)
        self.sandboxes: Cache[Sandbox] = Cache(SANDBOXES)
        self.pools: Cache[SandboxWarmPool] = Cache(POOLS)
        self.clock, self.metrics = ManualClock(), Metrics()
        self.assigner = Assigner(self.clock.monotonic)
        self.leads = True
        self._revision = 0
        self.measures = ControllerMetrics(
            self.claims, self.sandboxes, self.pools, self.assigner, self.clock, self.metrics,
            leading=lambda: self.leads, **options,
        )  # fmt: skip
        if filled:
            self.fill()

    def fill(self) -> None:
        """The caches have been listed: what comes now is new."""
        for cache in (self.claims, self.sandboxes, self.pools):
            self._revision += 1
            cache.replace(tuple(cache), Revision(self._revision))  # type: ignore[arg-type]

    def put(self, cache: Cache[T], obj: T) -> T:
        self._revision += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self._revision))
        obj = msgspec.structs.replace(obj, metadata=meta)
        cache.upsert(obj)
        return obj

    def drop(self, cache: Cache[T], obj: T) -> None:
        cache.mark_deleting(obj.metadata.key, obj.metadata.uid)
        cache.gone(obj.metadata.key, obj.metadata.uid)

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    def text(self, prefix: str) -> list[str]:
        """The lines of a scrape that start like this, without those of buckets and of creation times."""
        lines = self.metrics.expose().decode().splitlines()
        return [line for line in lines if line.startswith(prefix) and "_bucket{" not in line and "_created" not in line]

    # Objects, put into their caches

    def pool(
        self, name: str = "p", *, template: str = "t", replicas: int = 3, namespace: str = "default", uid: str = ""
    ) -> SandboxWarmPool:
        meta = Metadata(name=name, namespace=namespace, uid=Uid(uid or f"{namespace}-{name}-uid"))
        spec = SandboxWarmPoolSpec(sandbox_template_ref=TemplateRef(name=template), replicas=replicas)
        return self.put(self.pools, SandboxWarmPool(metadata=meta, spec=spec))

    def claim(self, name: str = "c", *, pool: str = "p", namespace: str = "default", **meta: Any) -> SandboxClaim:
        head = Metadata(
            name=name, namespace=namespace, uid=Uid(f"{name}-uid"), creation_timestamp=self.clock.now(), **meta
        )
        spec = SandboxClaimSpec(warm_pool_ref=ClaimsPoolRef(name=pool))
        return self.put(self.claims, SandboxClaim(metadata=head, spec=spec))

    def bound(self, claim: SandboxClaim, sandbox: str, *, ready: bool = True) -> SandboxClaim:
        conditions = put((), "Ready", "True" if ready else "False", "X", "", generation=1, now=START)
        status = SandboxClaimStatus(conditions=conditions, sandbox=BoundSandbox(name=sandbox))
        return self.put(self.claims, msgspec.structs.replace(claim, status=status))

    def sandbox(self, name: str = "s", *, ready: bool | None = None, **meta: Any) -> Sandbox:
        body = member_body(**{"name": name, "uid": f"{name}-uid", "namespace": "default", **meta})
        if ready is not None:
            body["status"] = {"conditions": [condition(status="True" if ready else "False")]}
        return self.put(self.sandboxes, convert(SANDBOXES, body))

    def handed(self, claim: SandboxClaim, name: str = "s", *, launch: str = "warm", ready: bool = True) -> Sandbox:
        """A sandbox that belongs to the claim now."""
        return self.sandbox(name, ready=ready, owners=[owner(claim)], labels={labels.LAUNCH_TYPE: launch})


def owner(claim: SandboxClaim) -> dict[str, Any]:
    return {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "controller": True,
    }


def key(name: str, namespace: str = "default") -> Key:
    return Key(namespace, name)
