"""Takes over a pod that an earlier process has started and that still runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from functools import partial

from sandpool.base.errors import NodeError
from sandpool.node.backend import SANDBOX_LOST, Exit, Started
from sandpool.node.pods.context import PodContext
from sandpool.node.pods.logs.files import LogWriter
from sandpool.node.pods.notes import KnownContainer, KnownPod
from sandpool.node.pods.pod import Pod
from sandpool.node.pods.run import Run, resume_run
from sandpool.node.pods.state import ContainerState
from sandpool.node.runtimes.contract import FoundContainer, FoundSandbox, Sandbox

LOST = "the container was gone when a later process looked for it"


async def take_over(pod: Pod, found: FoundSandbox[Sandbox], known: KnownPod, context: PodContext) -> None:
    """Raises NodeError if it cannot be taken over; then nothing of it is held here, and the sandbox can be destroyed. Runs that the pod does
    not know of were being started: they are ended, and their containers are started again once the API has told what they need."""
    runs = dict(found.containers)
    try:
        await _take_over(pod, found, known, runs, context)
    except BaseException:
        close_files(runs)
        for container in pod.containers.values():
            if container.run is not None:
                await container.run.abandon()
        await pod.sandbox.detach()
        raise
    pod.taken_over(initialized=known.initialized, paused=known.paused, evicted=known.evicted)


async def _take_over(
    pod: Pod, found: FoundSandbox[Sandbox], known: KnownPod, runs: dict[tuple[str, int], FoundContainer], context: PodContext
) -> None:  # fmt: skip
    """Takes out of `runs` what is taken over or ended."""
    await pod.sandbox.take_over(found, known)
    if known.paused:
        await found.sandbox.pause()
    for name, container in pod.containers.items():
        before = known.containers.get(name)
        if before is not None:
            run = runs.pop((name, before.restarts), None) if isinstance(before.state, Started) else None
            await _restore(pod, container, before, run, context)
            if before.image_id:
                await context.images.hold(before.image_id, pod.workload.holder)
    while runs:
        await _end(runs.popitem()[1])


async def _restore(
    pod: Pod, container: ContainerState, known: KnownContainer, found: FoundContainer | None, context: PodContext
) -> None:
    container.state, container.id, container.image_id = known.state, known.id, known.image_id
    container.restarts, container.last, container.uncounted = known.restarts, known.last, known.uncounted
    container.ran = known.ran
    if not isinstance(known.state, Started):
        return
    if found is None:
        now = context.run_context.clock.now()
        container.state = Exit(137, now, known.state.at, 9, SANDBOX_LOST, LOST)
        return
    pod.follow(container, await _resumed(pod, container, found, context))


async def _resumed(pod: Pod, container: ContainerState, found: FoundContainer, context: PodContext) -> Run:
    spec, options = container.spec, context.options
    log = pod.sandbox.directory.log(spec.name)
    make = partial(LogWriter, log, container.restarts, options.log_size, options.log_files)
    try:
        writer = await context.run_context.threads.run(make)
    except OSError as error:
        await _end(found)
        raise NodeError("CreateContainerError", f"container {spec.name}: its log cannot be written: {error}") from error
    run_context = context.run_context
    return resume_run(found.container, found.files, writer, run_context, stdin=spec.stdin, once=spec.stdin_once)


async def _end(found: FoundContainer) -> None:
    with contextlib.suppress(NodeError):
        await found.container.kill()
    close_files({("", 0): found})


def close_files(runs: Mapping[tuple[str, int], FoundContainer]) -> None:
    """Closes the files of runs that nobody takes over."""
    for each in runs.values():
        for file in (*each.files, *([] if each.container.terminal is None else [each.container.terminal])):
            os.close(file)
