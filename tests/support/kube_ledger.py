"""What the controllers asked of API servers in a whole test run: the sum of the servers' audit logs."""

from __future__ import annotations

from dataclasses import dataclass, field

from support.kube_access import USER
from support.kube_audit import Audit


@dataclass
class Ledger:
    runs: set[str] = field(default_factory=set)  # whose logs are in here
    used: set[tuple[str, str]] = field(default_factory=set)  # verb, and resource with its subresource

    def close(self, run: str, audit: Audit) -> None:
        """Called when a server of that run ends."""
        self.runs.add(run)
        self.used |= {(each.verb, each.resource) for each in audit.requests(USER)}


LEDGER = Ledger()
