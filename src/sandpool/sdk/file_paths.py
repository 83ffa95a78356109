"""Paths in a sandbox, as its daemon is asked for them. Pure."""

from __future__ import annotations

import os
from urllib.parse import quote, urlencode

from sandpool.wire.paths import FILES

RemotePath = str | os.PathLike[str]
"""In the sandbox. One that does not begin with a slash begins at the sandbox's home."""


def file_url(path: RemotePath, *flags: str, **values: str) -> str:
    """`flags` are parameters without a value."""
    text = os.fspath(path)
    if "\0" in text:
        raise ValueError(f"the path {text!r} holds a null character")
    relative = not text.startswith("/")
    words = [*flags, *(["relative"] if relative else [])]
    values = {name: value for name, value in values.items() if value}
    if values:
        words.append(urlencode(values, errors="surrogateescape"))
    query = "&".join(words)
    name = quote(text.lstrip("/"), errors="surrogateescape")
    return f"{FILES}/{name}" + (f"?{query}" if query else "")


def joined(folder: RemotePath, name: str) -> str:
    """ValueError for a name that leads elsewhere: whoever copies what a folder holds may use it as a name here, too."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is no name in a folder")
    text = os.fspath(folder)
    return name if text in ("", ".") else f"{text.rstrip('/')}/{name}"


def octal(mode: int | None) -> str:
    if mode is None:
        return ""
    if not 0 <= mode <= 0o777:
        raise ValueError(f"mode is {mode!r}; give permission bits such as 0o644")
    return f"{mode:04o}"
