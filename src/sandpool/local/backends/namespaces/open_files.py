"""The machine's table of open files, which all sandboxes share and no control group divides.

The kernel charges every open file to the memory of whoever opened it, so that memory is the bound that holds; but it also has a
number for the whole machine, which one sandbox could reach alone. systemd lifts that number on every machine that it runs;
where it does not, root does it here. Root itself is never refused by the kernel, ordinary users and sandboxes are.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

MOST = Path("/proc/sys/fs/file-max")
UNBOUNDED = 2**63 - 1


def raise_most(setting: Path) -> None:
    """A machine that does not let it be written keeps its number; docs/explanation/threat-model.md says what that means."""
    with contextlib.suppress(OSError, ValueError):
        if int(setting.read_text()) < UNBOUNDED:
            setting.write_text(str(UNBOUNDED))
