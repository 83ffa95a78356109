"""The ResourceQuota controller: publishes `status.hard` and `status.used`.

Enforcement does not read the status: `objects/quota/ledger.py` counts when each write is decided. So the status may lag a moment, and one write
covers many changes.
"""

from __future__ import annotations

from typing import Any

from sandpool.base.clock import Clock
from sandpool.controlplane.objects.objects import Objects
from sandpool.kube.errors import ApiError, NotFound
from sandpool.model import kinds
from sandpool.model.patches import Patch, PatchType
from sandpool.telemetry.log import logger

log = logger(__name__)

PAUSE = 0.2  # seconds between two rounds, so that a pool that fills causes one status write


class QuotaStatus:
    """The controller: `run` until cancelled."""

    def __init__(self, objects: Objects, clock: Clock, pause: float = PAUSE) -> None:
        self._objects = objects
        self._clock = clock
        self._pause = pause

    async def run(self) -> None:
        quotas = self._objects.quotas
        while True:
            await quotas.changed.wait()
            for ledger in quotas.outdated():
                for name, status in tuple(ledger.statuses()):
                    try:
                        await self._publish(ledger.namespace, name, status)
                    except ApiError as error:
                        quotas.outdate(ledger.namespace)
                        log.warning(
                            "quota status not written", namespace=ledger.namespace, quota=name, error=str(error)
                        )
            await self._clock.sleep(self._pause)

    async def _publish(self, namespace: str, name: str, status: dict[str, Any]) -> None:
        patch = Patch(PatchType.JSON, [{"op": "add", "path": "/status", "value": status}])
        try:
            await self._objects.patch(kinds.RESOURCE_QUOTAS, namespace, name, patch, subresource="status")
        except NotFound:
            pass  # the quota was deleted
