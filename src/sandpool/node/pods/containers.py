"""Starts one container, and turns its end into an exit status."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from datetime import datetime
from functools import partial

from sandpool.base.errors import NodeError
from sandpool.base.shielded import shielded
from sandpool.node.backend import SANDBOX_LOST, Exit, Started
from sandpool.node.images.image import Image
from sandpool.node.pods.context import PodContext
from sandpool.node.pods.directories import termination_message
from sandpool.node.pods.logs.files import LogWriter, forget_runs_before
from sandpool.node.pods.logs.reading import Text, advance, last_lines
from sandpool.node.pods.pod_sandbox import PodSandbox
from sandpool.node.pods.run import Run, start_run
from sandpool.node.pods.runtime_plans import container_id, container_plan
from sandpool.node.pods.security import check_container
from sandpool.node.pods.state import ContainerState
from sandpool.node.runtimes.contract import ContainerPlan, Ended

MESSAGE_BYTES = 4096
_CANNOT_RUN = ("StartError", "ContainerCannotRun")
_FALLBACK_LINES, _FALLBACK_BYTES = 80, 2048
_LONGEST_SIGNAL = 32  # characters of its name: an image may say anything


async def start_container(
    container: ContainerState,
    sandbox: PodSandbox,
    context: PodContext,
    started: Callable[[ContainerState, Run], None],
    notify: Callable[[], None],
) -> None:
    """Raises NodeError if it must be retried later. A command that cannot be started is an exit, not an error. `started` is called
    once it runs, even if this is cancelled meanwhile; `notify` when its status changes."""
    spec, workload = container.spec, sandbox.workload

    def progress(words: str) -> None:
        container.progress = words
        notify()

    check_container(spec)
    try:
        image = await context.images.take(
            spec.image,
            holder=workload.holder,
            tenant=workload.key.namespace,
            policy=spec.image_pull_policy,
            credentials=workload.credentials,
            progress=progress,
        )
    finally:
        container.progress = ""
    await shielded(_start(container, image, sandbox, context, started))


async def _start(
    container: ContainerState,
    image: Image,
    sandbox: PodSandbox,
    context: PodContext,
    started: Callable[[ContainerState, Run], None],
) -> None:
    spec, clock, attempt = container.spec, context.run_context.clock, container.attempt
    plan, writer = await context.run_context.threads.run(partial(_prepare, container, image, sandbox, context))
    container.image_id = image.id
    sandbox.stop_signals[spec.name] = stop_signal(image.config.stop_signal)
    name = container_id(context.runtime.name, sandbox.workload, spec.name, attempt)
    try:
        run = await start_run(
            sandbox.require(), plan, writer, context.run_context, stdin=spec.stdin, once=spec.stdin_once
        )
    except NodeError as error:
        end = start_exit(error, clock.now())
        if end is None:
            raise
        container.failed(end, name)
        return
    container.started(run, Started(clock.now(), ready=True), name)
    started(container, run)


def _prepare(
    container: ContainerState, image: Image, sandbox: PodSandbox, context: PodContext
) -> tuple[ContainerPlan, LogWriter]:
    """Does all work on files in one go. Blocks."""
    spec, attempt, options = container.spec, container.attempt, context.options
    try:
        message = sandbox.directory.message(spec.name, attempt) if _has_message(container) else None
        plan = container_plan(
            sandbox.workload,
            spec,
            image,
            sandbox.volumes or {},
            address=sandbox.address,
            message=message,
            proxy_port=sandbox.proxy_port,
            attempt=attempt,
        )
        log = sandbox.directory.log(spec.name)
        forget_runs_before(log, attempt - 1)
        return plan, LogWriter(log, attempt, options.log_size, options.log_files)
    except OSError as error:
        raise NodeError(
            "CreateContainerError", f"container {spec.name}: its files cannot be created: {error}"
        ) from error


def _has_message(container: ContainerState) -> bool:
    return container.spec.termination_message_path.startswith("/")


async def exit_state(
    container: ContainerState, ended: Ended, started: datetime, sandbox: PodSandbox, context: PodContext
) -> Exit:
    words = (
        await context.run_context.threads.run(partial(_termination_message, container, ended, sandbox))
        if _has_message(container)
        else ""
    )
    return exit_of(ended, started, context.run_context.clock.now(), words)


def _termination_message(container: ContainerState, ended: Ended, sandbox: PodSandbox) -> str:
    """The termination message or, with FallbackToLogsOnError after a failure, the end of the log. The message file, which may be large, is
    removed: from now on the status has the message. Blocks."""
    words = termination_message(sandbox.directory.message_path(container.spec.name, container.restarts), MESSAGE_BYTES)
    with contextlib.suppress(OSError):
        sandbox.directory.forget_message(container.spec.name, container.restarts)
    if words or not ended.code or container.spec.termination_message_policy != "FallbackToLogsOnError":
        return words
    log, run = sandbox.directory.log(container.spec.name), container.restarts
    position, reader, text = last_lines(log, run, _FALLBACK_LINES), Text(), b""
    while True:
        block, position = advance(log, run, position)
        if not block:
            return text.decode(errors="replace")
        text = (text + reader.of(block))[-_FALLBACK_BYTES:]


def exit_of(ended: Ended, started_at: datetime, now: datetime, message: str) -> Exit:
    """The exit status. The container's own message takes precedence over the runtime's, unless the sandbox was lost. Exit codes are clamped."""
    reason = "OOMKilled" if ended.oom else SANDBOX_LOST if ended.lost else ""
    code = ended.code if 0 <= ended.code <= 255 else 255
    words = ended.message if ended.lost else message or ended.message
    return Exit(code, max(now, started_at), started_at, ended.signal, reason, words)


def start_exit(error: NodeError, now: datetime) -> Exit | None:
    """The exit of a command that cannot be started, as in Kubernetes; None for other errors, which are retried."""
    if error.reason not in _CANNOT_RUN:
        return None
    return Exit(128, now, now, 0, error.reason, error.message)


def stop_signal(name: str) -> int:
    """The number of an image's stop signal: SIGINT, INT or 2. SIGTERM if it is not a signal."""
    text = name[:_LONGEST_SIGNAL].strip().upper()
    if text.isdecimal():
        return int(text) if 0 < int(text) <= 64 else signal.SIGTERM
    text = text if text.startswith("SIG") else f"SIG{text}"
    if text.startswith("SIGRTMIN+") and text[9:].isdecimal():
        return min(64, 34 + int(text[9:]))
    return int(signal.Signals[text]) if text in signal.Signals.__members__ else signal.SIGTERM
