"""`sandpool wait`: waits until objects meet a condition, or until the timeout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import ClusterFlags, Selector, Timeout, timeout_of
from sandpool.cli.completion import kinds_and_names
from sandpool.cli.console import Console, Terminal
from sandpool.cli.exits import NOT_FOUND, TIMED_OUT, USAGE, Exit
from sandpool.cli.kinds import Kind, chosen, plural, word
from sandpool.cli.objects.advice import advice
from sandpool.cli.objects.conditions import EXAMPLES, Awaited, Gone, There, awaited, condition_list
from sandpool.kube.errors import Gone as WatchExpired

Json = dict[str, Any]


def states(cluster: Cluster, kind: Kind, namespace: str, name: str, timeout: float | None) -> Iterator[Json | None]:
    """The object at each change; None while it does not exist. Looks at least once; ends at the deadline."""
    until = cluster.deadline(timeout)
    while True:
        found = cluster.list(kind, namespace, fields=f"metadata.name={name}")
        yield found["items"][0] if found["items"] else None
        try:
            for event in cluster.watch(
                kind, namespace, since=found["metadata"]["resourceVersion"], fields=f"metadata.name={name}", until=until
            ):
                if event["type"] == "DELETED":
                    yield None
                elif event["type"] in ("ADDED", "MODIFIED"):
                    yield event["object"]
        except WatchExpired:
            pass  # the revision was compacted: list again
        if until.left == 0:
            return


@dataclass(frozen=True, slots=True)
class Wait:
    wanted: tuple[tuple[Kind, tuple[str, ...]], ...]
    awaited: Awaited
    timeout: float | None
    selector: str = ""

    def validate(self) -> None:
        named = any(names for _, names in self.wanted)
        if named == bool(self.selector):
            raise Exit(USAGE, "name the objects: KIND/NAME, or KIND with --selector")

    def run(self, cluster: Cluster, console: Console) -> None:
        until = cluster.deadline(self.timeout)
        for kind, names in self.wanted:
            found = names or tuple(
                item["metadata"]["name"]
                for item in cluster.list(kind, cluster.namespace, labels=self.selector)["items"]
            )
            if not found and not isinstance(self.awaited, Gone):
                raise Exit(
                    NOT_FOUND,
                    f"no {plural(kind)} have the labels {self.selector}; `sandpool get {plural(kind)}` lists all",
                )
            for name in found:
                self.one(cluster, console, kind, name, until.left)
                console.say(f"{word(kind)}/{name}: {self.awaited}")

    def one(self, cluster: Cluster, console: Console, kind: Kind, name: str, timeout: float | None) -> None:
        """Returns when the condition is met; exits with 3 if the object does not exist, with 4 on timeout."""
        last: Json | None = None
        with console.progress(f"waiting for {word(kind)}/{name}: {self.awaited}"):
            for body in states(cluster, kind, cluster.namespace, name, timeout):
                if self.awaited.met(body):
                    return
                if body is None and not isinstance(self.awaited, There):
                    gone = "is not there any more" if last is not None else "is not there"
                    raise Exit(
                        NOT_FOUND,
                        f"{word(kind)}/{name} {gone} in namespace {cluster.namespace}; `sandpool get {plural(kind)} -A` lists the existing ones",
                    )
                last = body
        raise Exit(TIMED_OUT, late(kind, cluster.namespace, name, last, str(self.awaited), timeout))


def late(kind: Kind, namespace: str, name: str, body: Json | None, awaited: str, timeout: float | None) -> str:
    """The message on timeout: the state of the object, and advice."""
    problem = f"{word(kind)}/{name} in namespace {namespace} is not {awaited} after {round(timeout or 0.0, 1):g} s"
    if body is None:
        return f"{problem}: it is not there. Create it, or wait longer with --timeout"
    states_ = "; ".join(
        f"{one.get('type')} {one.get('status')} ({', '.join(part for part in (one.get('reason'), one.get('message')) if part)})"
        for one in condition_list(body)
        if one.get("reason") not in ("AsExpected", "NotSuspended")
    )
    next_step = advice(word(kind), namespace, name, body) or [
        f"`sandpool describe {word(kind)}/{name} -n {namespace}` shows more"
    ]
    return f"{problem}. {states_ + '. ' if states_ else ''}{next_step[0]}"


def wait(
    *what: Annotated[str, Parameter(completer=kinds_and_names, help="KIND/NAME..., or KIND with --selector.")],
    for_: Annotated[str, Parameter(name="--for", help=f"What to wait for: {EXAMPLES}.")],
    timeout: Timeout = "30s",
    selector: Selector = "",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Wait until objects meet a condition.

    Exits with 3 if an object does not exist (or is deleted meanwhile), with 4 on timeout.
    """
    options = Wait(tuple(chosen(what)), awaited(for_), timeout_of(timeout), selector)
    options.validate()
    with connected(where) as cluster:
        options.run(cluster, Terminal())
