"""Who holds anything of a sandbox that has ended: what belongs to one of its ids, a namespace that is not his own, or very much that was sent
to him and that he does not read. All of it comes to another pod only by the name of a socket, in a volume that both have.

Asked only when memory of that sandbox stays in use. What cannot be looked into counts as held.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence

from sandpool.local.backends.base import Workload
from sandpool.local.backends.pods.queued import files_on_the_way, queued, unread
from sandpool.local.volumes.spec import Claim, HostPath

MOST = 100_000
"""Open files of one pod that are looked at."""
MOST_UNREAD = 4 << 20
_MOMENT = 0.1  # seconds
_BESIDES = ("cwd", "root", "exe")
_NAMESPACE = re.compile(r"[a-z_]+:\[\d+\]")
_NO_NAMESPACES = ("socket", "pipe")


def reached(ended: Workload, others: Iterable[Workload]) -> list[Workload]:
    """Those of the same tenant to whom it can have given something, also by way of each other. Pure."""
    within, left, found = _shared(ended), [each for each in others if each.key.namespace == ended.key.namespace], []
    while near := [each for each in left if each.uid != ended.uid and within & _shared(each)]:
        found += near
        left = [each for each in left if each not in near]
        within = within.union(*map(_shared, near))
    return found


def _shared(work: Workload) -> set[str]:
    """Volumes that others can have, too. Folders of the machine may lie in each other."""
    sources = [volume.source for volume in work.volumes]
    claims = {source.uid for source in sources if isinstance(source, Claim)}
    return claims | ({"/"} if any(isinstance(source, HostPath) for source in sources) else set())


def holds(pids: Iterable[int], ids: range) -> bool:
    """Blocks. What waits in queues may be read a moment later: who leaves it there is asked twice."""
    pids = tuple(pids)
    if not _holds(pids, ids):
        return False
    time.sleep(_MOMENT)
    return _holds(pids, ids)


def _holds(pids: Sequence[int], ids: range) -> bool:
    looked = waiting = 0
    for pid in pids:
        own = set(_namespaces(pid))
        for link in _links(pid):
            looked += 1
            if isinstance(link, int):
                waiting += link
            elif link is None or _theirs(link, own, ids):
                return True
            if looked > MOST or waiting > MOST_UNREAD:
                return True
    return False


def _theirs(link: str, own: set[str], ids: range) -> bool:
    leads_to = _link(link)
    if _NAMESPACE.fullmatch(leads_to) and not leads_to.startswith(_NO_NAMESPACES):
        return leads_to not in own
    try:
        return os.stat(link).st_uid in ids
    except OSError:
        return False  # it is closed by now


def _namespaces(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/ns"):
            with contextlib.suppress(OSError):
                yield os.readlink(f"/proc/{pid}/ns/{name}")


def _links(pid: int) -> Iterator[str | int | None]:
    """Of /proc, to all that the process has; for sockets also how many bytes wait in them; None for what cannot be looked into. By
    thread: each can have files of its own."""
    for task in _listed(f"/proc/{pid}/task"):
        folder = f"/proc/{pid}/task/{task}"
        for name in _listed(f"{folder}/fd"):
            yield f"{folder}/fd/{name}"
            if _link(f"{folder}/fd/{name}").startswith("socket:"):
                yield unread(int(task), name, leader=int(task) == pid)
            there = files_on_the_way(folder, name)
            for file in queued(int(task), name, leader=int(task) == pid) if there else ():
                there -= 1
                yield None if file is None else f"/proc/self/fd/{file}"
            if there > 0:
                yield None  # sockets, of which only what is in them is told
        yield from (f"{folder}/{name}" for name in _BESIDES)
    yield from (f"/proc/{pid}/map_files/{name}" for name in _listed(f"/proc/{pid}/map_files"))


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
