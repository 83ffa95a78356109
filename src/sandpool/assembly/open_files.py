"""How many files this process may have open: each sandbox takes about a dozen, and what a login gives is often 1024."""

from __future__ import annotations

import resource

ENOUGH = 1 << 19
"""For some ten thousand sandboxes and their connections. More than that is not asked for: some systems allow a billion."""


def allow_open_files() -> int:
    """Raises the soft limit as far as the hard one lets it, and says what it is then. Sandboxes have limits of their own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
