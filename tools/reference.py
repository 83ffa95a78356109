"""Writes the pages of docs/reference that repeat the code: the kinds, the SDK, and the tables of reasons and Events.

Metrics, flags and permissions have pages of their own making, which tests compare with the code.

With --check it only says which pages are not as they would be written, and fails if there are any.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from kinds_page import kinds_page
from sandpool.model import event_reasons, reasons
from sdk_page import sdk_page

PAGES = Path(__file__).parent.parent / "docs/reference"


def with_table(page: str, table: str) -> str:
    """The page with its only table of reasons replaced."""
    header = re.escape(table.splitlines()[0])
    return re.sub(
        rf"^{header}\n(\|.*\n)+",
        lambda _: table if table.endswith("\n") else f"{table}\n",
        page,
        count=1,
        flags=re.MULTILINE,
    )


WRITTEN: dict[str, Callable[[str], str]] = {
    "kinds.md": lambda _: kinds_page(),
    "sdk.md": lambda _: sdk_page(),
    "conditions.md": lambda page: with_table(page, reasons.table()),
    "events.md": lambda page: with_table(page, event_reasons.table()),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = []
    for name, write in WRITTEN.items():
        path = PAGES / name
        old = path.read_text() if path.exists() else ""
        new = write(old)
        if new != old:
            stale.append(name)
            if not check:
                path.write_text(new)
    for name in stale:
        print(f"docs/reference/{name} {'is not as the code says; run `make reference`' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
