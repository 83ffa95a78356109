"""The backends that are broken out of: how each runtime is made, and what it promises. Another one is a line here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import sandpool
from sandpool.node.runtimes.contract import Runtime
from sandpool.node.runtimes.gvisor.runtime import GvisorRuntime
from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime
from sandpool.node.runtimes.process.runtime import ProcessRuntime


@dataclass(frozen=True)
class Kind:
    """`isolates`: attempts must fail; else they must succeed. `own_kernel`: calls reach a kernel of the sandbox's own."""

    make: Callable[[Path, str], Runtime]
    isolates: bool = True
    own_kernel: bool = False
    without: Mapping[str, str] = field(default_factory=dict)  # scenarios that mean nothing there, and why

    def tries(self, *, own_kernel_only: bool) -> bool:
        return not own_kernel_only or self.own_kernel or not self.isolates

    def plays(self, scenario: str) -> bool:
        return scenario not in self.without and (self.own_kernel or scenario not in ONLY_OWN_KERNEL)


def fork_server() -> tuple[str, ...]:
    """What `sandpool up` starts, also from a copy of the package that is not installed."""
    code = (
        f"import sys; sys.path.append({str(Path(sandpool.__file__).parents[1])!r}); from sandpool.boxd.forked import "
        "serve_forked; from sandpool.node.runtimes.namespaces.forked.forkserver import main; main(serve_forked)"
    )
    return (sys.executable, "-I", "-S", "-c", code)


_OWN_INIT = "pid 1 is the container's own command there"
_LIMIT = "a limit ends the whole sandbox there"
_NO_BOXD = "boxd is not started inside"
GVISOR_WITHOUT = {
    "a_fork_bomb": f"{_LIMIT}: a_fork_bomb_ends_its_own_kernel",
    "too_much_memory": f"{_LIMIT}: too_much_memory_ends_whoever_takes_it",
    "signals_to_init": f"{_OWN_INIT}: signals_to_the_command_that_is_init",
    "orphans_are_reaped": f"{_OWN_INIT}: orphans_cost_the_machine_nothing",
    "nobody_outlives_the_sandbox": "the machine sees no names of processes: nobody_outlives_its_own_kernel",
    "the_bomb_is_ended_with_its_sandbox": "the machine sees no names of processes: nobody_outlives_its_own_kernel",
    "the_machines_share_of_watches": "its watches are none of the machine's",
    "first_segments_of_many_connections": "connections inside are its own kernel's, in memory of the pod",
    "connections_that_nobody_accepts": "connections inside are its own kernel's, in memory of the pod",
    "replies_that_nobody_reads": "its own kernel replies, in memory of the pod",
    "locks_without_number": "locks are its own kernel's, in memory of the pod",
    "listings_without_number": "listings are its own kernel's, in memory of the pod",
    "memory_of_those_who_have_ended": "sockets in volumes are its own there, and nothing is given through them",
    "links_followed_by_boxd": _NO_BOXD,
    "archives_unpacked_by_boxd": _NO_BOXD,
    "a_race_with_boxd_inside": _NO_BOXD,
    "boxd_is_ended_and_comes_again": _NO_BOXD,
    "modules_planted_for_those_who_look_after_the_sandbox": _NO_BOXD,
}
ONLY_OWN_KERNEL = (
    "a_fork_bomb_ends_its_own_kernel", "too_much_memory_ends_whoever_takes_it", "signals_to_the_command_that_is_init",
    "orphans_cost_the_machine_nothing", "nobody_outlives_its_own_kernel", "nobody_opens_a_door_where_there_is_no_boxd",
    "what_it_takes_of_its_own_kernel",
)  # fmt: skip

BACKENDS: dict[str, Kind] = {
    "namespaces": Kind(lambda folder, name: NamespacesRuntime(folder, installation=name, entry=fork_server())),
    "gvisor": Kind(
        lambda folder, name: GvisorRuntime(folder, installation=name), own_kernel=True, without=GVISOR_WITHOUT
    ),
    "process": Kind(lambda folder, name: ProcessRuntime(folder, installation=name), isolates=False),
}
