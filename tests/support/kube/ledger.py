"""What the controllers asked of API servers in a whole test run: the sum of the servers' audit logs."""

from __future__ import annotations

from dataclasses import dataclass, field

from support.kube.access import USER
from support.kube.audit import Audit

Used = set[tuple[str, str]]
"""Verb, and resource with its subresource."""


@dataclass
class Ledger:
    _closed: dict[str, Used] = field(default_factory=dict)
    _open: dict[str, Audit] = field(default_factory=dict)  # of servers that still run

    @property
    def runs(self) -> set[str]:
        """Whose logs are in here."""
        return {*self._closed, *self._open}

    @property
    def used(self) -> Used:
        return set().union(*self._closed.values(), *map(_used, self._open.values()))

    def open(self, run: str, audit: Audit) -> None:
        self._open[run] = audit

    def close(self, run: str) -> None:
        """The server is about to end, and its log with it."""
        self._closed.setdefault(run, set()).update(_used(self._open.pop(run)))


def _used(audit: Audit) -> Used:
    return {(each.verb, each.resource) for each in audit.requests(USER)}


LEDGER = Ledger()
