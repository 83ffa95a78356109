"""The options of a kubelet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandpool.node.kubelet.machine import capacity
from sandpool.version import __version__


@dataclass(frozen=True, slots=True)
class Pace:
    """Delays and intervals in seconds."""

    settle: float = 1.0  # a status difference that is not urgent is written with the next one, or after this long
    first_word: float = 0.5  # a new pod's first status is written when it is ready, or after this long
    first_restart: float = 10.0  # before the second restart of a container, doubling; the first one is immediate
    longest_restart: float = 300.0
    forgiven: float = 600.0  # a run this long resets the back-off
    first_retry: float = 1.0  # after a backend could not start a pod, doubling
    longest_retry: float = 300.0
    longest_lookup: float = 15.0  # the longest delay, if an object that the pod refers to was missing
    pressure: float = 2.0  # between checks whether the disk has space again for a pod that waits
    refresh: float = 30.0  # between checks for changed ConfigMaps and Secrets
    tidy: float = 30.0  # between checks for deleted claims
    renew: float = 10.0  # between renewals of the node's lease
    lease: float = 40.0  # duration of the node's lease


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    node: str = "local"
    address: str = "127.0.0.1"
    places: bool = True  # bind pods without a node to this one; off where a scheduler does it
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=capacity)
    version: str = f"v1.35.0+sandpool-{__version__}"
    runtime: str = ""  # empty: the backend's name
    workers: int = 22  # of which one namespace has at most 16
    looks_up: bool = True  # resolve references of pods; off for a fake node in a real cluster
    routine_events: bool = False  # also emit events for the steps of a start that goes well
    content: int | None = (
        None  # bytes that files and variables of all pods may take; None: a part of the machine's memory
    )
    pace: Pace = Pace()
