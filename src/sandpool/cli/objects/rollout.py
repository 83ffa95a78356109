"""How far a pool has come. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandpool.cli.objects.waiting import condition_list

Json = dict[str, Any]
_REPLACES = ("Recreate", "RollingUpdate")


@dataclass(frozen=True, slots=True)
class Progress:
    done: bool
    text: str


def progress(pool: Json) -> Progress:
    """Done: the controller has seen this spec, as many sandboxes as wanted are ready, and none is older than the template, where
    the pool's strategy replaces those."""
    metadata, spec, status = pool["metadata"], pool.get("spec") or {}, pool.get("status") or {}
    name, wanted = metadata["name"], spec.get("replicas", 1)
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        return Progress(False, f"pool {name}: the controller has not seen the latest change yet")
    replaces = (spec.get("updateStrategy") or {}).get("type") in _REPLACES
    ready = status.get("updatedReadyReplicas" if replaces else "readyReplicas", 0)
    there, fresh = status.get("replicas", 0), status.get("updatedReplicas", 0)
    if ready >= wanted and there <= wanted:
        return Progress(
            True, f"pool {name}: {ready} of {wanted} ready" + ("" if fresh >= wanted else _older(there - fresh))
        )
    parts = [f"{status.get('readyReplicas', 0)} of {wanted} ready"]
    parts += [f"{fresh} of the present template"] if replaces and fresh < wanted else []
    parts += [f"{there - wanted} too many"] if there > wanted else []
    return Progress(False, f"pool {name}: {', '.join(parts)}{_trouble(pool)}")


def _older(count: int) -> str:
    return f"; {count} of an older template, which stay until they are claimed" if count > 0 else ""


def _trouble(pool: Json) -> str:
    for one in condition_list(pool):
        if one.get("type") == "Progressing" and one.get("status") != "True" and one.get("reason") != "UpToDate":
            return f"; {one.get('reason')}: {one.get('message', '')}"
    return ""
