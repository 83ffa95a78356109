"""What the kernel counts by person, and how an ordinary user's share of it is divided among sandboxes that are the same person.

A user namespace has bounds of its own below /proc/sys/user; what is used inside counts there and in every namespace above it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

# The bound of a user namespace, and the machine's for each person.
COUNTED = {"max_inotify_instances": "max_user_instances", "max_inotify_watches": "max_user_watches"}
ALL_TOGETHER, ONE = 2, 8  # a half for all sandboxes, an eighth for one
LEAST = 4


def of_this_user() -> dict[str, int]:
    """What the person who runs this may have. What cannot be read is left out, and not divided."""
    found = {}
    for name, setting in COUNTED.items():
        with contextlib.suppress(OSError, ValueError):
            found[name] = min(_read(f"/proc/sys/user/{name}"), _read(f"/proc/sys/fs/inotify/{setting}"))
    return found


def together(whole: Mapping[str, int]) -> dict[str, int]:
    """The rest stays with whatever else that person runs."""
    return {name: max(LEAST, most // ALL_TOGETHER) for name, most in whole.items()}


def of_one_sandbox(whole: Mapping[str, int]) -> dict[str, int]:
    return {name: max(LEAST, most // ONE) for name, most in whole.items()}


def hold(bounds: Mapping[str, int]) -> None:
    """In the user namespace of this process, which must have just made it. A machine whose /proc/sys is closed has none."""
    for name, most in bounds.items():
        with contextlib.suppress(OSError):
            file = os.open(f"/proc/sys/user/{name}", os.O_WRONLY)
            try:
                os.write(file, str(most).encode())
            finally:
                os.close(file)


def _read(path: str) -> int:
    with open(path) as file:
        return int(file.read())
