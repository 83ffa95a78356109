"""How trouble with images is told."""

from __future__ import annotations

import errno
from pathlib import Path

from sandpool.base.errors import NodeError


def pull_error(reference: str, why: str) -> NodeError:
    return NodeError("ErrImagePull", f"image {reference}: {why}")


def disk_full(reference: str, folder: Path) -> NodeError:
    return pull_error(
        reference,
        f"no space is left for it in {folder}. Make room, for example with `sandpool image prune`; nothing of it was kept",
    )


def full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class NotAllowed(Exception):
    """A registry says that these credentials do not suffice."""


class Broken(Exception):
    """The network broke something that may work when tried again."""
