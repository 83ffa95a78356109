"""What a sandbox's shim keeps of it, and how a later process takes the sandbox over.

The shim keeps, by name: `sandbox`, the plan and the open namespaces; `volumes`, those in memory; `note:NAME`, values of the caller; and each run of a
container, by its name and the number of the run. A sandbox of which the first is missing was not made completely, and is ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import Bandwidth, FoundContainer, FoundSandbox, Limits, SandboxPlan
from sandpool.node.runtimes.namespaces.machine import Machine
from sandpool.node.runtimes.namespaces.sandbox import NOTE, SANDBOX, VOLUMES, NamespaceSandbox, SandboxHost
from sandpool.node.runtimes.namespaces.shim import Recalled, Shim


def plan_of(kept: Mapping[str, Any]) -> SandboxPlan:
    """The plan as the shim keeps it. KeyError, TypeError or ValueError if it is not one of this version."""
    plan, limits = dict(kept["plan"]), dict(kept["plan"]["limits"])
    io = limits.pop("io")
    plan |= {
        "directory": Path(plan["directory"]),
        "limits": Limits(**limits, io=None if io is None else Bandwidth(**io)),
    }
    return SandboxPlan(**plan)


async def take_over(shim: Shim, machine: Machine, host: SandboxHost) -> FoundSandbox[NamespaceSandbox]:
    """Raises NodeError if the sandbox cannot be taken over; its shim is still there then."""
    recalled = await shim.recall()
    try:
        return _found(recalled, shim, machine, host)
    except (KeyError, TypeError, ValueError) as error:
        for each in recalled.values():
            each.close()
        raise NodeError("SandboxGone", "it was not made completely, or by another version") from error


def _found(
    recalled: dict[str, Recalled], shim: Shim, machine: Machine, host: SandboxHost
) -> FoundSandbox[NamespaceSandbox]:
    """Takes out of `recalled` what is taken over. KeyError, TypeError or ValueError if it cannot be."""
    own = recalled[SANDBOX]
    plan = plan_of(own.value)
    if len(own.files) != 5:
        raise ValueError("files")
    sandbox = NamespaceSandbox(plan, machine, int(own.value["base"]), host)
    sandbox.take_over(shim, own.value, recalled.pop(SANDBOX).files)
    if (volumes := recalled.pop(VOLUMES, None)) is not None:
        sandbox.take_over_volumes(volumes.value, volumes.files)
    notes = {name[len(NOTE) :]: each.value for name, each in recalled.items() if name.startswith(NOTE)}
    containers = {}
    for key in [each for each in recalled if not each.startswith(NOTE)]:
        name, _, attempt = key.rpartition("-")
        run = name, int(attempt)
        if (container := _container(sandbox, shim, key, recalled.pop(key))) is not None:
            containers[run] = container
    return FoundSandbox(plan, sandbox, notes, containers)


def _container(sandbox: NamespaceSandbox, shim: Shim, key: str, recalled: Recalled) -> FoundContainer | None:
    """None if its start was not finished: then it is ended."""
    if "files" not in recalled.value or recalled.channel is None:
        recalled.kill()
        recalled.close()
        shim.drop(key)
        return None
    more = recalled.files[len(recalled.value["files"]) :]
    container = sandbox.take_over_container(key, recalled, recalled.channel)
    container.end_commands()
    return FoundContainer(container, tuple(more))
