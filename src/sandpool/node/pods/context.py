"""What all pods of a backend, and all runs of their containers, share: options, clock, threads and the services of the node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sandpool.base.clock import Clock
from sandpool.model.metadata import Uid
from sandpool.node.images.image import Images
from sandpool.node.network.contract import Network
from sandpool.node.pods.directories import PodDirectories
from sandpool.node.pods.threads import Threads
from sandpool.node.runtimes.contract import Runtime
from sandpool.node.volumes.spec import Volumes


@dataclass(frozen=True, slots=True)
class PodsOptions:
    """Times in seconds, sizes in bytes."""

    log_size: int = 10 << 20  # bytes of one log file
    log_files: int = 5  # log files kept of one run of a container
    first_retry: float = 1.0  # after a sandbox, volume or network could not be made; doubles
    first_pull_retry: float = 10.0  # the same for images
    longest_retry: float = 300.0
    linger: float = (
        0.5  # wait for the rest of the output after the exit, while a background process holds the pipe open
    )
    stall: float = 30.0  # an attached client that reads nothing for so long is dropped, and the container continues
    kept: float = 60.0  # files of pods of an earlier process stay so long, in case the pods are started again
    pids: int | None = 4096  # processes of one pod
    egress_port: int = 3128


@dataclass(frozen=True, slots=True)
class RunContext:
    """What each run of a container uses. Logs have their own threads, so that a long removal does not hold them up; and so has the search for
    deleted files that processes hold, which may take long and during which the pod is frozen."""

    clock: Clock
    threads: Threads
    log_threads: Threads
    search_threads: Threads
    options: PodsOptions

    def of(self, tenant: str) -> RunContext:
        """The same, with threads in the turns of a namespace."""
        return replace(
            self,
            threads=self.threads.of(tenant),
            log_threads=self.log_threads.of(tenant),
            search_threads=self.search_threads.of(tenant),
        )

    def close(self) -> None:
        """Returns when all work that was begun is done."""
        for threads in (self.threads, self.log_threads, self.search_threads):
            threads.close()


@dataclass(frozen=True, slots=True)
class PodContext:
    """What each pod uses."""

    runtime: Runtime
    images: Images
    volumes: Volumes
    network: Network
    directories: PodDirectories
    run_context: RunContext
    changed: Callable[[Uid], object]

    @property
    def options(self) -> PodsOptions:
        return self.run_context.options
