"""`make bench-kube`: the same bursts on a real kube-apiserver and etcd with fsync, for our controllers, for the public Go controller
and for nobody (the floor), beside each other in one run: five repeats, order alternated, new servers for each.

    PYTHONPATH=tests python -m bench.kube [--claims N] [--repeats N] [--sides ours go go-defaults floor] [--into DIRECTORY]

Writes, conflicts and who made them are counted in the server's audit log. The ratio is the result, not the times.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from bench import RESULTS
from bench.contenders import FLOOR, GO, GO_DEFAULTS, TITLES
from bench.floor import floor
from bench.pools import NAMESPACE, POOL, make, reached, ready_members
from bench.sides import BINARY, OUR_FLAGS, SHIPPED_FLAGS, TUNED_FLAGS, acting, definitions_of
from kube.build import AGENT_SANDBOX, ETCD, KUBERNETES, RIVAL_MODULE, definitions, find
from sandpool.kube.api import Api
from sandpool.load.audit import AuditLog
from sandpool.load.compare import compare, comparison_table
from sandpool.load.machine import is_durable
from sandpool.load.scenario import FAILURES, Failed, Scenario, exit_code, say
from sandpool.load.series import HOLLOW, OURS, Series, alternated, around, brief, busy_cores, write
from sandpool.model.kinds import PODS, SANDBOXES
from support.kube import server as kube_server
from support.kube.process import Process, hollow_node
from support.kube.server import KubeServer

IMAGE = "python:3.13"  # hollow: nobody pulls it
SETTLING = 600.0
T = TypeVar("T")
BURST, BURSTS, OVERLOAD = "kube-burst", "kube-bursts", "kube-overload"
STORE = 60
"""Members of the pool of an overload: few, because what is in store is no capacity."""


@dataclass(frozen=True, slots=True)
class Size:
    claims: int = 300
    bursts: int = 5
    every: str = "full"
    hold: int = 20  # seconds of each step until the highest rate is found
    past: int = 30  # seconds of twice that rate

    def scenarios(self) -> dict[str, Scenario]:
        several = ("bursts", "--claims", str(self.claims), "--times", str(self.bursts), "--every", self.every)
        loads = {BURST: ("burst", "--claims", str(self.claims)), BURSTS: several, OVERLOAD: self._overload()}
        return {name: Scenario(name, self.title(name), load) for name, load in loads.items()}

    def _overload(self) -> tuple[str, ...]:
        """On a pool of its own. A step is held if the p99 is within a second: two round trips to a server that others use, too."""
        return (
            *("ramp", "--start", "10", "--factor", "1.5", "--hold", f"{self.hold}s", "--refine", "2", "--p99", "1000"),
            *("--past", "2", "--past-for", f"{self.past}s", "--image", IMAGE, "--pool-size", str(STORE)),
        )

    def scenarios_of(self, side: str) -> dict[str, Scenario]:
        """Run one after the other on the same servers. The second set of Go flags is only needed for the ratios of a burst. The floor has
        its own script. Overload is measured for our controllers only."""
        all_of_them = self.scenarios()
        names = {OURS: (BURST, BURSTS, OVERLOAD), GO: (BURST, BURSTS), GO_DEFAULTS: (BURST,), FLOOR: ()}[side]
        return {name: all_of_them[name] for name in names}

    def title(self, scenario: str) -> str:
        pool = f"on a pool of {2 * self.claims}"
        if scenario == OVERLOAD:
            return f"twice the highest rate that {self.hold} seconds were held at, offered for {self.past} seconds, on a pool of {STORE}"
        if scenario == BURST:
            return f"{self.claims} claims at once {pool}"
        pace = (
            f"each on a full pool of {2 * self.claims}" if self.every == "full" else f"one every {self.every}, {pool}"
        )
        return f"{self.bursts} bursts of {self.claims}, {pace}"


async def measured(side: str, size: Size, found: dict[str, dict[str, Any]]) -> None:
    """Fills `found` by scenario. Servers, node and controller are new and go afterwards; logs stay only if something failed."""
    directory = Path(tempfile.mkdtemp(prefix="sandpool-bench-"))
    try:
        with (
            kube_server.running(accounts=True, durable=True, crds=definitions_of(side)) as server,
            hollow_node(directory, server.kubeconfig),
        ):
            await _on(server, side, size, directory, found)
    except Exception as error:
        error.add_note(f"logs of the run are in {directory}")
        raise
    except BaseException:  # Ctrl-C
        shutil.rmtree(directory, ignore_errors=True)
        raise
    shutil.rmtree(directory, ignore_errors=True)


async def _on(server: KubeServer, side: str, size: Size, directory: Path, found: dict[str, dict[str, Any]]) -> None:
    members = 2 * size.claims
    async with reached(server.kubeconfig) as api:
        await make(api, members, image=IMAGE)
        with acting(side, server, directory) as who:
            await _while_alive(who.process, ready_members(api, members))
            await _while_alive(who.process, _settled(api, members))
            for name, scenario in size.scenarios_of(side).items():
                await _while_alive(who.process, _settled(api, members))
                run = scenario.on(*_flags(server, scenario.load, who.user, who.metrics)).run()
                found[name] = await _while_alive(who.process, run)
        if side == FLOOR:
            found[BURST] = await floor(server.kubeconfig, size.claims, AuditLog(server.audit, "admin"))


async def _while_alive(process: Process, work: Coroutine[Any, Any, T]) -> T:
    """A run in which the controller ended (it lost its lease, say) measures nothing, and nobody waits for its end."""
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=0.5)
            if process.code is not None:
                raise Failed(f"the controller ended with {process.code}: {process.tail(1)[:300]}")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return task.result()


def _flags(server: KubeServer, shape: Sequence[str], user: str, metrics: str) -> tuple[str, ...]:
    existing = () if "--image" in shape else ("--pool", POOL, "--namespace", NAMESPACE)
    return (
        *("--kubeconfig", str(server.kubeconfig), *existing),
        *("--audit-log", str(server.audit), "--audit-user", user, "--metrics", metrics),
        *(
            "--timeout",
            "300s" if "--past" in shape else "120s",
            "--fill-timeout",
            f"{SETTLING:g}s",
            "--clean-timeout",
            "30s",
        ),
    )


async def _settled(api: Api, members: int) -> None:
    """Waits until nothing of the previous load is left: exactly so many sandboxes and pods. The same for all sides."""
    async with asyncio.timeout(SETTLING):
        while True:
            sandboxes, pods = await api.list(SANDBOXES, NAMESPACE), await api.list(PODS, NAMESPACE)
            if len(sandboxes.items) == len(pods.items) == members:
                return
            await asyncio.sleep(1)


def conditions() -> dict[str, Any]:
    return around(
        kubernetes=KUBERNETES,
        etcd=ETCD,
        fsync=True,
        file_system=is_durable("/var/tmp")[1],  # noqa: S108 - where etcd has its data
        node=HOLLOW,
        leader_election=False,
        go_controller=f"{RIVAL_MODULE} {AGENT_SANDBOX}",
        flags={OURS: list(OUR_FLAGS), GO: list(TUNED_FLAGS), GO_DEFAULTS: list(SHIPPED_FLAGS)},
    )


async def compared(sides: Sequence[str], size: Size, repeats: int, directory: Path) -> int:
    around_it = conditions()
    series = {
        name: Series(
            scenario=name,
            title=scenario.title,
            command=f"{scenario.command} --kubeconfig … {'' if '--image' in scenario.load else f'--pool {POOL} '}--audit-log …",
            sides={},
            conditions=around_it,
            extra={},
        )
        for name, scenario in size.scenarios().items()
    }
    failures = 0
    for repeat in range(repeats):
        for side in alternated(sides, repeat):
            say(f"run {repeat + 1} of {repeats}: {TITLES[side]}")
            failures += await _one_run(side, size, series)
            for each in series.values():
                write(each, directory)
    for each in series.values():
        _tell(each)
    return failures


async def _one_run(side: str, size: Size, series: Mapping[str, Series]) -> bool:
    """Whether it failed. Measurements before that count."""
    busy = await busy_cores()
    found: dict[str, dict[str, Any]] = {}
    trouble: Exception | None = None
    try:
        await measured(side, size, found)
    except (*FAILURES, ValueError, kube_server.ServerFailed) as error:
        trouble = error
        say(f"  failed: {error} ({'; '.join(getattr(error, '__notes__', []))})")
    for scenario, each in series.items():
        if scenario in found:
            say(f"  {scenario}: {brief(found[scenario])}")
            each.sides.setdefault(side, []).append({**found[scenario], "busy_cores_before": busy})
        elif trouble is not None and scenario in (
            size.scenarios_of(side) or (BURST,)
        ):  # that it failed is a result, too
            each.extra.setdefault("failed_runs", {}).setdefault(side, []).append(str(trouble)[:300])
    return trouble is not None


def _tell(series: Series) -> None:
    for other in (GO, GO_DEFAULTS, FLOOR):
        if series.sides.get(other) and series.runs:
            say(f"\n{series.scenario}: A is {TITLES[other]}, B is {TITLES[OURS]}")
            say(comparison_table(compare(series.sides[other], series.runs, seed=1)))


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures on a real kube-apiserver and etcd.")
    parser.add_argument("--claims", type=int, default=300, help="of a burst; the pool is twice that")
    parser.add_argument("--bursts", type=int, default=5)
    parser.add_argument("--every", default="full", help="from one burst to the next; full: when the pool is full again")
    parser.add_argument("--hold", type=int, default=20, help="seconds of a step of the ramp before an overload")
    parser.add_argument("--past", type=int, default=30, help="seconds of the overload")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sides", nargs="+", choices=list(TITLES), help="default: all")
    parser.add_argument("--into", type=Path, default=RESULTS, help="directory of the results")
    arguments = parser.parse_args()
    if lacking := kube_server.lacking():
        parser.error(lacking)
    size = Size(arguments.claims, arguments.bursts, arguments.every, arguments.hold, arguments.past)
    if arguments.into == RESULTS and replace(size, every="full") != Size():
        parser.error(
            "what is published has 5 bursts of 300 claims, steps of 20 s and 30 s past capacity; say with --into where other results go"
        )
    sides = arguments.sides or _usual_sides()
    return exit_code(compared(sides, size, arguments.repeats, arguments.into))


def _usual_sides() -> list[str]:
    """Leaves out the Go controller if it could not be built."""
    if find(BINARY) is not None and definitions() is not None:
        return [OURS, GO, GO_DEFAULTS, FLOOR]
    say(f"{BINARY} is not built, so it is left out: run `python tests/kube/build.py {BINARY}`")
    return [OURS, FLOOR]


if __name__ == "__main__":
    sys.exit(main())
