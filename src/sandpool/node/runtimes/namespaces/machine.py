"""What all sandboxes of the runtime share, and what the containers of one sandbox share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sandpool.node.runtimes.namespaces.cgroup_manager import CgroupManager
from sandpool.node.runtimes.namespaces.shim import RunDirectory
from sandpool.node.runtimes.namespaces.tenant_groups import TenantGroups
from sandpool.node.runtimes.namespaces.terminals import Terminals


@dataclass(frozen=True, slots=True)
class Machine:
    """What all sandboxes of a runtime share. `ranged`: we are root, and each sandbox has its own range of ids."""

    skeleton: Path
    cgroups: CgroupManager
    tenants: TenantGroups
    ranged: bool
    count_processes: bool  # whether the kernel counts processes per user namespace
    quotas: dict[str, int] = field(default_factory=dict)  # quotas of one sandbox, when all run as one user
    terminals: Terminals = field(default_factory=Terminals)
    run_directory: RunDirectory | None = None  # None: sandboxes end with this process


@dataclass(frozen=True, slots=True)
class Shared:
    """Open files of the namespaces: as long as they are open, the kernel keeps the sandbox."""

    user: int
    net: int
    ipc: int
    uts: int

    @property
    def files(self) -> list[int]:
        return [self.user, self.net, self.ipc, self.uts]
