"""Starting one container, and telling how it ended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from functools import partial

from sandpool.base.errors import NodeError
from sandpool.node.backend import Exit, Started
from sandpool.node.images.image import Image
from sandpool.node.pods import ends
from sandpool.node.pods.folders import last_words
from sandpool.node.pods.logs.files import LogWriter, forget_runs_before
from sandpool.node.pods.logs.place import advance, last_lines
from sandpool.node.pods.logs.reading import Text
from sandpool.node.pods.parts import Parts
from sandpool.node.pods.plan import container_id, container_plan
from sandpool.node.pods.room import Room
from sandpool.node.pods.run import Run, begin
from sandpool.node.pods.security import check_container
from sandpool.node.pods.slot import Slot
from sandpool.node.pods.threads import unbroken
from sandpool.node.runtimes.contract import ContainerPlan, Ended

_FALLBACK_LINES, _FALLBACK_BYTES = 80, 2048


async def begin_container(
    slot: Slot, room: Room, parts: Parts, started: Callable[[Slot, Run], None], tell: Callable[[], None]
) -> None:
    """NodeError if it has to be tried again later. A command that cannot be started is an end, and no error. `started` is called
    if it runs, even if this is cancelled meanwhile; `tell` when the slot looks different."""
    spec, workload = slot.spec, room.workload

    def progress(words: str) -> None:
        slot.progress = words
        tell()

    check_container(spec)
    try:
        image = await parts.images.take(
            spec.image,
            holder=workload.holder,
            tenant=workload.key.namespace,
            policy=spec.image_pull_policy,
            credentials=workload.credentials,
            progress=progress,
        )
    finally:
        slot.progress = ""
    await unbroken(_start(slot, image, room, parts, started))


async def _start(slot: Slot, image: Image, room: Room, parts: Parts, started: Callable[[Slot, Run], None]) -> None:
    spec, clock, attempt = slot.spec, parts.around.clock, slot.attempt
    plan, writer = await parts.around.threads.run(partial(_prepare, slot, image, room, parts))
    slot.image_id = image.id
    room.stop_signals[spec.name] = ends.stop_signal(image.config.stop_signal)
    name = container_id(parts.runtime.name, room.workload, spec.name, attempt)
    try:
        run = await begin(room.there(), plan, writer, parts.around, stdin=spec.stdin, once=spec.stdin_once)
    except NodeError as error:
        end = ends.start_exit(error, clock.now())
        if end is None:
            raise
        slot.failed(end, name)
        return
    slot.started(run, Started(clock.now(), ready=True), name)
    started(slot, run)


def _prepare(slot: Slot, image: Image, room: Room, parts: Parts) -> tuple[ContainerPlan, LogWriter]:
    """Everything about files, at once. Blocking."""
    spec, attempt, options = slot.spec, slot.attempt, parts.options
    try:
        message = room.folder.message(spec.name, attempt) if _has_last_words(slot) else None
        plan = container_plan(
            room.workload,
            spec,
            image,
            room.volumes or {},
            address=room.address,
            message=message,
            proxy_port=room.proxy_port,
            attempt=attempt,
        )
        log = room.folder.log(spec.name)
        forget_runs_before(log, attempt - 1)
        return plan, LogWriter(log, attempt, options.log_size, options.log_files)
    except OSError as error:
        raise NodeError("CreateContainerError", f"container {spec.name}: its files cannot be made: {error}") from error


def _has_last_words(slot: Slot) -> bool:
    return slot.spec.termination_message_path.startswith("/")


async def how_it_ended(slot: Slot, ended: Ended, started: datetime, room: Room, parts: Parts) -> Exit:
    words = await parts.around.threads.run(partial(_last_words, slot, ended, room)) if _has_last_words(slot) else ""
    return ends.exit_of(ended, started, parts.around.clock.now(), words)


def _last_words(slot: Slot, ended: Ended, room: Room) -> str:
    """What it left as its message or, if it failed without one and asks for that, the end of its log. The message is in the status from now
    on, and its file, which may be large, is not kept. Blocking."""
    words = last_words(room.folder.message_path(slot.spec.name, slot.restarts), ends.MESSAGE_BYTES)
    with contextlib.suppress(OSError):
        room.folder.forget_message(slot.spec.name, slot.restarts)
    if words or not ended.code or slot.spec.termination_message_policy != "FallbackToLogsOnError":
        return words
    log, run = room.folder.log(slot.spec.name), slot.restarts
    place, reader, text = last_lines(log, run, _FALLBACK_LINES), Text(), b""
    while True:
        block, place = advance(log, run, place)
        if not block:
            return text.decode(errors="replace")
        text = (text + reader.of(block))[-_FALLBACK_BYTES:]
