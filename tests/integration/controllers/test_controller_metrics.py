"""The numbers that the whole control plane makes: all controllers on one store, in virtual time, read as a scraper would."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sandpool.controllers.metrics.controller_metrics import ControllerMetrics
from sandpool.model.kinds import CLAIMS, POOLS, TEMPLATES
from sandpool.telemetry.metrics import Metrics
from support.clocks.virtual_loop import run_virtually
from support.simulated.control_plane import ROUND_TRIP, ControlPlane, a_control_plane

HERE = {"namespace": "default", "pool": "python"}


@dataclass
class Measured:
    plane: ControlPlane
    metrics: Metrics
    measures: ControllerMetrics

    def read(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def pool(self, what: str) -> float:
        return self.read(f"sandpool_pool_{what}", **HERE)


def measured(work: Callable[[Measured], Awaitable[None]]) -> None:
    async def main() -> None:
        async with a_control_plane() as plane:
            caches, metrics = plane.controllers.caches, Metrics()
            parts = (caches.claims, caches.sandboxes, caches.pools, plane.controllers.assigner)
            measures = ControllerMetrics(*parts, plane.clock, metrics)
            await plane.template()
            await work(Measured(plane, metrics, measures))

    run_virtually(main())


def test_a_burst_of_warm_claims() -> None:
    async def work(one: Measured) -> None:
        plane, names = one.plane, [f"c{number}" for number in range(20)]
        await plane.pool(20)
        await plane.filled(20)
        assert (one.pool("desired"), one.pool("ready"), one.pool("warming")) == (20, 20, 0)
        await asyncio.gather(*(plane.claim(name) for name in names))
        await plane.served(names)
        await plane.filled(20)
        assert (one.pool("hits_total"), one.pool("misses_total"), one.pool("claimed")) == (20, 0, 20)
        assert (one.pool("ready"), one.pool("reserved"), one.pool("waiting")) == (20, 0, 0)
        waited = {**HERE, "launch_type": "warm"}
        assert one.read("sandpool_claim_ready_seconds_count", **waited) == 20
        assert one.read("sandpool_claim_ready_seconds_sum", **waited) <= 20 * 2 * ROUND_TRIP + 1e-9
        handed = {
            "namespace": "default",
            "sandbox_template": "python",
            "warmpool_name": "python",
            "created_by": "unknown",
        }
        creation = "agent_sandbox_claim_creation_total"
        assert one.read(creation, launch_type="warm", pod_condition="ready", **handed) == 20
        assert one.measures.timed == 0
        for name in names:
            await plane.user.delete(CLAIMS, name, "default")

        async def released() -> bool:
            return one.pool("claimed") == 0 and one.read("sandpool_sandboxes", namespace="default", state="ready") == 20

        await plane.until(released)

    measured(work)


def test_more_claims_than_members() -> None:
    async def work(one: Measured) -> None:
        plane, names = one.plane, [f"c{number}" for number in range(6)]
        await plane.pool(2)
        await plane.filled(2)
        await asyncio.gather(*(plane.claim(name) for name in names))
        await plane.claim("special", env=[{"name": "A", "value": "1"}])
        await plane.served(names)
        assert one.pool("hits_total") >= 2
        assert one.pool("hits_total") + one.pool("misses_total") == 6, "a claim with env is neither"
        timed = sum(
            one.read("sandpool_claim_ready_seconds_count", launch_type=launch, **HERE) for launch in ("warm", "cold")
        )
        assert timed >= 6

    measured(work)


def test_a_deleted_pool_leaves_no_series() -> None:
    async def work(one: Measured) -> None:
        await one.plane.pool(2)
        await one.plane.filled(2)
        await one.plane.user.delete(POOLS, "python", "default")

        async def gone() -> bool:
            return b'pool="python"' not in one.metrics.expose() and not await one.plane.sandboxes()

        await one.plane.until(gone)
        assert b'sandbox_template="python"' not in one.metrics.expose()

    measured(work)


def test_cold_starts_say_why() -> None:
    async def work(one: Measured) -> None:
        plane = one.plane

        def counted() -> dict[tuple[str, str], float]:
            lines = plane.observability.metrics.registry.collect()
            samples = [sample for line in lines for sample in line.samples]
            return {
                (sample.labels["pool"], sample.labels["reason"]): sample.value
                for sample in samples
                if sample.name == "sandpool_pool_cold_starts_total"
            }

        await plane.edit(TEMPLATES, "python", envVarsInjectionPolicy="Allowed")
        await plane.pool(0, "none")
        await plane.pool(2)
        await plane.filled(2)
        await plane.claim("of-zero", "none")
        await plane.claim("env", env=[{"name": "A", "value": "1"}])
        await plane.claim("warm")
        await plane.served(["of-zero", "env", "warm"])
        assert counted() == {("none", "pool_of_zero"): 1, ("python", "env"): 1}

    measured(work)
