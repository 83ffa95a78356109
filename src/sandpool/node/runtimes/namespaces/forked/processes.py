"""Reads processes from /proc: their parents, sessions, and the CPU time and memory they use."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """One process, from /proc/PID/stat."""

    pid: int
    parent: int
    session: int
    ticks: int  # of CPU time, its own
    reaped: int  # of CPU time, of its reaped children
    pages: int


def parse(line: str) -> Process | None:
    """Parses /proc/PID/stat. The name may contain anything: fields start after the last closing bracket."""
    pid, _, _ = line.partition(" ")
    fields = line[line.rfind(")") + 2 :].split()
    try:
        return Process(
            int(pid), int(fields[1]), int(fields[3]), int(fields[11]) + int(fields[12]),
            int(fields[13]) + int(fields[14]), int(fields[21]),
        )  # fmt: skip
    except (ValueError, IndexError):
        return None


def listed(proc: int) -> list[Process]:
    found = []
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            file = os.open(f"{name}/stat", os.O_RDONLY, dir_fd=proc)
        except OSError:
            continue  # it has ended
        try:
            process = parse(os.read(file, 4096).decode("utf-8", "replace"))
        except OSError:
            process = None
        finally:
            os.close(file)
        if process is not None:
            found.append(process)
    return found


def descendants(processes: Iterable[Process], leader: int) -> set[int]:
    """The pids of a session leader, of its session, and of all descendants."""
    everybody = list(processes)
    found = {process.pid for process in everybody if process.pid == leader or process.session == leader}
    grew = True
    while grew:
        more = {process.pid for process in everybody if process.parent in found} - found
        found |= more
        grew = bool(more)
    return found - {1}


def usage(processes: Iterable[Process]) -> tuple[float, int, int]:
    """CPU seconds, bytes of memory, and number of processes. Pid 1 belongs to the runtime."""
    everybody = list(processes)
    ticks = sum(process.ticks for process in everybody) + sum(each.reaped for each in everybody if each.pid == 1)
    pages = sum(process.pages for process in everybody if process.pid != 1)
    return (
        ticks / os.sysconf("SC_CLK_TCK"),
        pages * os.sysconf("SC_PAGE_SIZE"),
        sum(each.pid != 1 for each in everybody),
    )
