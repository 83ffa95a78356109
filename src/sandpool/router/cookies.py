"""Cookies of a sandbox that a browser visits under an address that it shares with others. Pure.

A browser sends the cookies of a host to every port of it, so those of other programs would reach the sandbox, and the sandbox's would
reach them. Therefore a sandbox sets cookies under a name and a path that are its own, and sees no others.
"""

from __future__ import annotations

import hashlib


def mark_of(prefix: bytes) -> bytes:
    """What the names of its cookies begin with, outside."""
    return b"box-" + hashlib.sha256(prefix).hexdigest()[:16].encode() + b"-"


def for_sandbox(cookie: bytes, mark: bytes) -> bytes:
    """The value of a Cookie header without those of others; empty: nothing is left."""
    pairs = (pair.strip(b" \t") for pair in cookie.split(b";"))
    return b"; ".join(pair[len(mark) :] for pair in pairs if pair.startswith(mark))


def for_browser(cookie: bytes, mark: bytes, prefix: bytes) -> bytes:
    """The value of a Set-Cookie header as the browser gets it; empty: it is none."""
    pair, *attributes = cookie.split(b";")
    name, separator, value = pair.partition(b"=")
    name, path, kept = name.strip(b" \t"), b"/", []
    if not separator or not name:
        return b""
    for attribute in attributes:
        key, _, content = (part.strip(b" \t") for part in attribute.partition(b"="))
        if key.lower() == b"path":
            path = content if content.startswith(b"/") else b"/"
        elif key and key.lower() != b"domain":
            kept.append(attribute.strip(b" \t"))
    return b"; ".join([mark + name + b"=" + value, *kept, b"Path=" + prefix.rstrip(b"/") + path])
