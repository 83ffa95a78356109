"""How many connections there may be: of one pod, and below the number of all pods together, which tenants share. Who finds none free is called back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from sandpool.base.shares import Shares

Free = Callable[[], bool]
"""Told that a slot is free; answers whether it still wants one."""


class Above(Protocol):
    """Those that a pod's are some of."""

    def take(self) -> bool: ...

    def give_back(self) -> None: ...

    def wait(self, free: Free) -> None: ...


class AllSlots:
    """Of all pods. What a tenant holds cannot be taken back: it never gets the last ones (base/shares.py)."""

    def __init__(self, limit: int) -> None:
        self.shares = Shares(limit)
        self._waiting: dict[str, deque[Free]] = {}  # by tenant, in the order of their turns

    def of(self, tenant: str) -> TenantSlots:
        return TenantSlots(self, tenant)

    def wait(self, tenant: str, free: Free) -> None:
        self._waiting.setdefault(tenant, deque()).append(free)

    def stir(self) -> None:
        """Calls the next one that may have a slot, one tenant after the other."""
        for tenant in tuple(self._waiting):
            waiting = self._waiting[tenant]
            while waiting and self.shares.room(tenant):
                if waiting.popleft()():
                    self._waiting[tenant] = self._waiting.pop(tenant)  # behind the others
                    return
            if not waiting:
                del self._waiting[tenant]


class TenantSlots:
    """Of all pods of one tenant."""

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
        """Somebody who was called does not want it any more."""
        self._every.stir()


class Slots:
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
        """After a `take` that failed: calls back once when it is worth another one."""
        if self._free == 0 or self._above is None:
            self._waiting.append(free)
        else:
            self._above.wait(free)
