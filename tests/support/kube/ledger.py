"""What the controllers asked of API servers in a whole test run: the sum of the servers' audit logs.

Several processes that run tests keep one together, in the folder that SANDPOOL_LEDGER names.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from support.kube.access import USER
from support.kube.audit import Audit

Used = set[tuple[str, str]]
"""Verb, and resource with its subresource."""


VARIABLE = "SANDPOOL_LEDGER"


@dataclass
class Ledger:
    folder: Path | None = None  # that other processes see
    _closed: dict[str, Used] = field(default_factory=dict)
    _open: dict[str, Audit] = field(default_factory=dict)  # of servers that still run

    @property
    def runs(self) -> set[str]:
        """Whose logs are in here."""
        return {*self._closed, *self._open, *(run for run, _ in self._pages())}

    @property
    def used(self) -> Used:
        return set().union(
            *self._closed.values(), *map(_used, self._open.values()), *(used for _, used in self._pages())
        )

    def _pages(self) -> list[tuple[str, Used]]:
        """Of all processes."""
        files = self.folder.glob("*.json") if self.folder else ()
        return [
            (run, {(verb, kind) for verb, kind in used}) for run, used in (json.loads(f.read_text()) for f in files)
        ]

    def open(self, run: str, audit: Audit) -> None:
        self._open[run] = audit

    def close(self, run: str) -> None:
        """The server is about to end, and its log with it."""
        used = _used(self._open.pop(run))
        self._closed.setdefault(run, set()).update(used)
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"{run}-{secrets.token_hex(4)}.json").write_text(json.dumps([run, sorted(used)]))


def _used(audit: Audit) -> Used:
    return {(each.verb, each.resource) for each in audit.requests(USER)}


LEDGER = Ledger(Path(os.environ[VARIABLE]) if VARIABLE in os.environ else None)
