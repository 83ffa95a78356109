"""Limits on connections, per pod and for all pods together; tenants share the total. A caller that finds no free slot is called back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from sandpool.base.shares import Shares

Free = Callable[[], bool]
"""Called when a slot is free; returns whether it is still wanted."""


class Above(Protocol):
    """The larger set of slots that a pod's slots are part of."""

    def take(self) -> bool: ...

    def give_back(self) -> None: ...

    def wait(self, free: Free) -> None: ...


class AllSlots:
    """The slots of all pods. One tenant never gets all of them, because slots in use cannot be taken back (`fits` in base/shares.py)."""

    def __init__(self, limit: int) -> None:
        self.shares = Shares(limit)
        self._waiting: dict[str, deque[Free]] = {}  # by tenant, in the order of their turns

    def of(self, tenant: str) -> TenantSlots:
        return TenantSlots(self, tenant)

    def wait(self, tenant: str, free: Free) -> None:
        self._waiting.setdefault(tenant, deque()).append(free)

    def stir(self) -> None:
        """Calls back the next waiting caller that may have a slot; tenants take turns."""
        for tenant in tuple(self._waiting):
            waiting = self._waiting[tenant]
            while waiting and self.shares.room(tenant):
                if waiting.popleft()():
                    self._waiting[tenant] = self._waiting.pop(tenant)  # to the end of the queue
                    return
            if not waiting:
                del self._waiting[tenant]


class TenantSlots:
    """The slots of all pods of one tenant."""

    def __init__(self, every: AllSlots, tenant: str) -> None:
        self._every = every
        self._tenant = tenant

    def take(self) -> bool:
        if not self._every.shares.fits(self._tenant):
            return False
        self._every.shares.take(self._tenant)
        return True

    def give_back(self) -> None:
        self._every.shares.take(self._tenant, -1)
        self._every.stir()

    def wait(self, free: Free) -> None:
        self._every.wait(self._tenant, free)

    def stir(self) -> None:
        """Calls back the next waiting caller, after one did not want its slot any more."""
        self._every.stir()


class Slots:
    """The connection slots of one pod, taken from those of all pods."""

    def __init__(self, limit: int, above: Above | None = None) -> None:
        self._free = limit
        self._above = above
        self._waiting: deque[Free] = deque()

    def take(self) -> bool:
        if self._free == 0 or (self._above is not None and not self._above.take()):
            return False
        self._free -= 1
        return True

    def give_back(self) -> None:
        self._free += 1
        if self._above is not None:
            self._above.give_back()
        while self._waiting and not self._waiting.popleft()():
            pass

    def wait(self, free: Free) -> None:
        """Calls `free` once, when a slot may be free. Use it after `take` failed."""
        if self._free == 0 or self._above is None:
            self._waiting.append(free)
        else:
            self._above.wait(free)
