"""What a kubelet is told once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandpool.node.kubelet.machine import capacity
from sandpool.version import __version__


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds."""

    settle: float = 1.0  # a status difference that nobody waits for travels with the next one, or after this long
    first_word: float = 0.5  # the same for a new pod, which is told of when it is ready, or after this long
    first_restart: float = 10.0  # before the second restart of a container, doubling; the first one is at once
    longest_restart: float = 300.0
    forgiven: float = 600.0  # a container that ran so long starts its delays anew
    first_retry: float = 1.0  # after a backend could not start a pod, doubling
    longest_retry: float = 300.0
    longest_lookup: float = 15.0  # the same, if something that the pod refers to was missing
    pressure: float = 2.0  # between looks whether the disk has room again for a pod that waits for that
    refresh: float = 30.0  # between looks for ConfigMaps and Secrets that have changed
    tidy: float = 30.0  # between looks for claims that are gone
    renew: float = 10.0  # between renewals of the node's lease
    lease: float = 40.0  # its duration


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    node: str = "local"
    address: str = "127.0.0.1"
    places: bool = True  # put pods that have no node on this one; off where a scheduler does it
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=capacity)
    version: str = f"v1.35.0+sandpool-{__version__}"
    runtime: str = ""  # empty: the backend's name
    workers: int = 16
    looks_up: bool = True  # what pods refer to; off for a node that only plays along on a cluster of others
    routine_events: bool = False  # also tell the steps of a start that goes well
    content: int | None = (
        None  # bytes that files and variables of all pods may take; None: a part of the machine's memory
    )
    pace: Pace = Pace()
