"""Limits the content of ConfigMaps and Secrets that pods use: files on disk and in memory, variables and credentials. Pure.

A pod object of two kilobytes can have 32 MiB of files that count against none of the pod's own limits, because the node writes them, and
those of Secrets into memory. Namespaces share a budget for that (base/shares.py). A pod that does not fit waits and is retried.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandpool.base.shares import Shares
from sandpool.model import quantities
from sandpool.model.metadata import Uid
from sandpool.node.images.image import Credential
from sandpool.node.kubelet.references import FAILED_MOUNT, Unresolved
from sandpool.node.volumes.spec import Content, VolumeSpec

BLOCK = 4096
"""Minimum bytes that a file takes."""
LEAST = 256 << 20
_PART = 16  # of the machine's memory


def total(capacity: Mapping[str, str]) -> int:
    """The budget of all namespaces together: a sixteenth of the machine's memory, at least LEAST."""
    return max(LEAST, quantities.parse(capacity.get("memory", "0")).value // _PART)


def files_size(volumes: Iterable[VolumeSpec]) -> int:
    """Bytes of all files with content from the API; each copy counts."""
    return sum(
        max(len(data), BLOCK)
        for spec in volumes
        if isinstance(spec.source, Content)
        for data in spec.source.files.values()
    )


def words_size(env: Mapping[str, Mapping[str, str]], credentials: Iterable[Credential]) -> int:
    """Bytes of memory that variables and logins take."""
    variables = sum([sys.getsizeof(value) for values in env.values() for value in values.values()])
    return variables + sum(len(one.username) + len(one.password) for one in credentials)


@dataclass(slots=True)
class _Held:
    namespace: str
    files: int
    words: int


class ContentBudget:
    """What pods hold of the budget, by namespace."""

    def __init__(self, total: int) -> None:
        self.shares = Shares(total)
        self._held: dict[Uid, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, uid: Uid, namespace: str, files: int, words: int) -> None:
        """Call for each pod that is about to start, even if it has no content yet: files may be added later. Unresolved if the namespace would
        exceed its share."""
        self.give_back(uid)
        self._check(namespace, files + words)
        self.shares.take(namespace, files + words)
        self._held[uid] = _Held(namespace, files, words)

    def change(self, uid: Uid, files: int) -> None:
        """Call before a pod's files are replaced. Does nothing for an unknown pod, which has gone in the meantime."""
        held = self._held.get(uid)
        if held is None:
            return
        more = files - held.files
        if more > 0:
            self._check(held.namespace, more)
        self.shares.take(held.namespace, more)
        held.files = files

    def give_back(self, uid: Uid) -> None:
        held = self._held.pop(uid, None)
        if held is not None:
            self.shares.take(held.namespace, -(held.files + held.words))

    def _check(self, namespace: str, more: int) -> None:
        if self.shares.fits(namespace, more):
            return
        raise Unresolved(  # no changing numbers in the message: each change would be a write of the pod's status
            FAILED_MOUNT,
            f"its files and variables take {more} bytes, and pods of namespace {namespace} would have more than their share of the "
            f"{self.shares.total} bytes that this machine has for ConfigMaps, Secrets and variables of pods. It starts when others have ended; "
            "or mount less, in fewer volumes",
        )
