"""What a pod's sandbox keeps for a later process: who the pod is, and how its containers are. Pure.

There are no secrets in it: variables, files of volumes and credentials come from the API again. A note of another version is not understood, and
its pod is started anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import Exit, Started, State, Waiting, Workload, WorkloadSpec
from sandpool.node.pods.state import ContainerState

VERSION = 1
POD, STATE = "pod", "state"

Json = dict[str, Any]


class NotUnderstood(Exception):
    """The note is of another version, or no note."""


def pod_note(workload: Workload) -> Json:
    spec = msgspec.structs.replace(
        workload.spec,
        containers=tuple(msgspec.structs.replace(one, env=()) for one in workload.spec.containers),
        init_containers=tuple(msgspec.structs.replace(one, env=()) for one in workload.spec.init_containers),
    )
    return {
        "version": VERSION,
        "uid": workload.uid,
        "namespace": workload.key.namespace,
        "name": workload.key.name,
        "labels": dict(workload.labels),
        "annotations": dict(workload.annotations),
        "spec": msgspec.to_builtins(spec),
    }


def workload_of(note: Mapping[str, Any]) -> Workload:
    """The workload without what is secret; `complete` of a pod gives it the rest."""
    try:
        if note["version"] != VERSION:
            raise NotUnderstood
        spec = msgspec.convert(note["spec"], WorkloadSpec)
        key = Key(note["namespace"], note["name"])
        return Workload(Uid(note["uid"]), key, spec, dict(note["annotations"]), labels=dict(note["labels"]))
    except (KeyError, TypeError, ValueError) as error:
        raise NotUnderstood from error


@dataclass(frozen=True, slots=True)
class KnownContainer:
    state: State
    id: str
    image_id: str
    restarts: int
    last: Exit | None
    uncounted: int
    ran: bool


@dataclass(frozen=True, slots=True)
class KnownPod:
    address: str = ""
    initialized: bool = False
    paused: bool = False
    evicted: str = ""
    notes: tuple[str, ...] = ()
    stop_signals: Mapping[str, int] = field(default_factory=dict)
    containers: Mapping[str, KnownContainer] = field(default_factory=dict)


_KINDS: dict[str, type[Waiting | Started | Exit]] = {"waiting": Waiting, "started": Started, "exit": Exit}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def state_note(known: KnownPod) -> Json:
    found: Json = msgspec.to_builtins(known)
    for name, one in known.containers.items():
        found["containers"][name]["kind"] = _NAMES[type(one.state)]
    return {"version": VERSION, **found}


def known_pod(note: Mapping[str, Any]) -> KnownPod:
    try:
        if note["version"] != VERSION:
            raise NotUnderstood
        containers = {name: _known(one) for name, one in note["containers"].items()}
        return msgspec.convert({**note, "containers": {}}, _PodWithoutContainers).of(containers)
    except (KeyError, TypeError, ValueError) as error:
        raise NotUnderstood from error


class _PodWithoutContainers(msgspec.Struct):
    address: str
    initialized: bool
    paused: bool
    evicted: str
    notes: tuple[str, ...]
    stop_signals: dict[str, int]

    def of(self, containers: Mapping[str, KnownContainer]) -> KnownPod:
        return KnownPod(
            self.address, self.initialized, self.paused, self.evicted, self.notes, self.stop_signals, containers
        )


def _known(one: Mapping[str, Any]) -> KnownContainer:
    state = msgspec.convert(one["state"], _KINDS[one["kind"]])
    last = None if one["last"] is None else msgspec.convert(one["last"], Exit)
    counts = int(one["restarts"]), int(one["uncounted"])
    return KnownContainer(state, str(one["id"]), str(one["image_id"]), counts[0], last, counts[1], bool(one["ran"]))


def known_containers(containers: Iterable[ContainerState]) -> dict[str, KnownContainer]:
    return {
        one.name: KnownContainer(one.state, one.id, one.image_id, one.restarts, one.last, one.uncounted, one.ran)
        for one in containers
    }
