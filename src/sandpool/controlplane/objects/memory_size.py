"""Estimates the memory that a stored object takes in this process, without decoding it. Pure.

Besides its text, which the store holds, controllers and the node keep what they read of it decoded (loop/cache.py), and the garbage collector its
owners. There, each label, variable or owner takes many times its stored size, so an estimate by stored bytes alone would let a tenant fill the memory
of the process while it stays within its share. The numbers are upper bounds, measured for the densest objects of each kind; a test compares
them with what is really held.
"""

from __future__ import annotations

from typing import Final

from sandpool.model.kinds import (
    CLAIMS,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    POOLS,
    SANDBOXES,
    SERVICES,
    TEMPLATES,
)

OBJECT: Final = 640
"""Bytes that an object takes in each cache, however small it is."""
OWNER: Final = 560
"""Bytes that an owner reference takes in the garbage collector's graph."""
_REST: Final = b'},"spec":'
"""What follows the metadata. Nothing in metadata looks like it: quotes within a string are escaped."""
# By kind: how many caches hold it, bytes of one member of the metadata in all of them, and of one member of everything else.
_HELD: Final = {
    **dict.fromkeys((kind.plural for kind in (CLAIMS, SANDBOXES, POOLS, TEMPLATES, SERVICES)), (1, 136, 96)),
    PERSISTENT_VOLUME_CLAIMS.plural: (1, 136, 32),  # its spec stays text
    NETWORK_POLICIES.plural: (2, 272, 384),  # compiled rules and selectors beside it
    PODS.plural: (2, 272, 88),  # only the node holds the spec
}


def memory_size(plural: str, value: bytes) -> int:
    """Bytes that the newest state of an object takes, its text included."""
    end = value.find(_REST)
    if end < 0:
        end = len(value)
    size = len(value) + OWNER * max(0, value.count(b'"uid":', 0, end) - 1)
    held = _HELD.get(plural)
    if held is None:
        return size
    caches, of_metadata, of_rest = held
    width = 1 if value.isascii() else 4  # Python uses the width of the widest character for all of a string
    size += caches * (OBJECT + width * len(value))
    size += of_metadata * (value.count(b",", 0, end) + value.count(b"{", 0, end))
    return size + of_rest * (value.count(b",", end) + value.count(b"{", end) + value.count(b"[", end))
