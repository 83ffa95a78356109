"""What the pods of this machine are told once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodsOptions:
    """Times in seconds, sizes in bytes."""

    log_size: int = 10 << 20  # of one log file
    log_files: int = 5  # of one run of a container
    first_retry: float = 1.0  # after something that a pod needs could not be had, doubling
    first_pull_retry: float = 10.0  # the same for images
    longest_retry: float = 300.0
    linger: float = 0.5  # how long to wait for the rest of an output that a background process holds open
    stall: float = (
        30.0  # a container waits so long for one that is attached and does not read, and then goes on without it
    )
    kept: float = 60.0  # what a pod of an earlier process left stays so long, for the pod to be started again
    pids: int | None = 4096  # of one pod
    egress_port: int = 3128
