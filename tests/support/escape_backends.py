"""The backends that are broken out of: how each runtime is made, and what it promises. Another one is a line here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import sandpool
from sandpool.local.backends.gvisor.runtime import GvisorRuntime
from sandpool.local.backends.namespaces.runtime import NamespacesRuntime
from sandpool.local.backends.process.runtime import ProcessRuntime
from sandpool.local.backends.runtime import Runtime


@dataclass(frozen=True)
class Kind:
    """`isolates`: attempts must fail; else they must succeed. `own_kernel`: calls reach a kernel of the sandbox's own."""

    make: Callable[[Path, str], Runtime]
    isolates: bool = True
    own_kernel: bool = False
    without: Mapping[str, str] = field(default_factory=dict)  # scenarios that mean nothing there, and why


def fork_server() -> tuple[str, ...]:
    """What `sandpool up` starts, also from a copy of the package that is not installed."""
    code = (
        f"import sys; sys.path.append({str(Path(sandpool.__file__).parents[1])!r}); from sandpool.boxd.forked import "
        "serve_forked; from sandpool.local.backends.namespaces.forked.forkserver import main; main(serve_forked)"
    )
    return (sys.executable, "-I", "-S", "-c", code)


_OWN_INIT = "pid 1 is the container's own command there"
GVISOR_WITHOUT = {
    "a_fork_bomb": "processes of a sandbox are none of the machine's",
    "signals_to_init": _OWN_INIT,
    "orphans_are_reaped": _OWN_INIT,
    "the_bomb_is_ended_with_its_sandbox": "processes of a sandbox are none of the machine's",
    "the_machines_share_of_watches": "its watches are none of the machine's",
}

BACKENDS: dict[str, Kind] = {
    "namespaces": Kind(lambda folder, name: NamespacesRuntime(folder, installation=name, entry=fork_server())),
    "gvisor": Kind(
        lambda folder, name: GvisorRuntime(folder, installation=name), own_kernel=True, without=GVISOR_WITHOUT
    ),
    "process": Kind(lambda folder, name: ProcessRuntime(folder, installation=name), isolates=False),
}
