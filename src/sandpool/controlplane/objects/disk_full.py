"""Decides what may still be written when the disk is full: deletes, status, and changes that hardly grow."""

from __future__ import annotations

from typing import Final

import msgspec

from sandpool.controlplane.objects.document import Document
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import Cause, InsufficientStorage

_GROWS: Final = 512  # bytes by which a change may grow an object: enough for a deletionTimestamp or a message
_STATUS_GROWS: Final = 16 * 1024


class DiskFullGuard:
    """Refuses writes with 507 while `why` is set: the disk is full. Deletes, and changes that hardly grow, are always stored."""

    def __init__(self) -> None:
        self.why = ""

    def check_new(self) -> None:
        if self.why:
            raise self._refusal("nothing new is stored")

    def check_change(self, record: Record, document: Document, subresource: str) -> None:
        if not self.why:
            return
        grows = _STATUS_GROWS if subresource == "status" else _GROWS
        if len(msgspec.json.encode(document)) > len(record.value) + grows:
            raise self._refusal("nothing that grows is stored")

    def _refusal(self, consequence: str) -> InsufficientStorage:
        text = f"{self.why}; {consequence} until there is room: delete sandboxes, images or other files on it"
        return InsufficientStorage(text, causes=(Cause("DiskFull", self.why),))
