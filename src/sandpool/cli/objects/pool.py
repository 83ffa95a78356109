"""`sandpool pool`: make warm pools, size them, and follow what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import App, Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import ClusterFlags, Timeout, timeout_of
from sandpool.cli.completing import pools, templates
from sandpool.cli.console import Console, Terminal
from sandpool.cli.exits import FAILED, TIMED_OUT, USAGE, Exit
from sandpool.cli.objects.following import states
from sandpool.cli.objects.pool_bodies import pool_body, template_body
from sandpool.cli.objects.rollout import progress
from sandpool.cli.objects.wait import late
from sandpool.kube.errors import AlreadyExists
from sandpool.model.kinds import POOLS, TEMPLATES
from sandpool.model.names import dns_subdomain

Json = dict[str, Any]
Pool = Annotated[str, Parameter(completer=pools, help="The pool.")]
MOST = 2**31 - 1

pool = App(name="pool", help="Make warm pools, size them, and follow what becomes of them.")
rollout = App(name="rollout", help="How far a pool has come.")
pool.command(rollout)


@dataclass(frozen=True, slots=True)
class Create:
    name: str
    image: str = ""
    template: str = ""
    replicas: int = 1
    command: tuple[str, ...] = ()

    def validate(self) -> None:
        if wrong := dns_subdomain(self.name):
            raise Exit(USAGE, f"{self.name!r} cannot be the name of a pool: {wrong[0]}")
        if bool(self.image) == bool(self.template):
            raise Exit(
                USAGE, "say what its sandboxes are made from: --image IMAGE, or --template NAME of one that is there"
            )
        if self.command and self.template:
            raise Exit(USAGE, "the template says what runs; a command goes with --image")
        _check(self.replicas)

    def run(self, cluster: Cluster, console: Console) -> None:
        space = cluster.namespace
        if self.image:
            self._make(cluster, TEMPLATES, template_body(self.name, self.image, self.command))
        else:
            cluster.get(TEMPLATES, space, self.template)  # says so where there is none
        self._make(cluster, POOLS, pool_body(self.name, self.template or self.name, self.replicas))
        console.write(f"{self.name}\n")
        console.say(f"`sandpool pool rollout status {self.name} -n {space}` waits until its sandboxes are ready.")

    def _make(self, cluster: Cluster, kind: Any, body: Json) -> None:
        try:
            cluster.create(kind, cluster.namespace, body)
        except AlreadyExists as error:
            word = "template" if kind == TEMPLATES else "pool"
            other = (
                "name the pool otherwise, or use it with --template"
                if kind == TEMPLATES
                else "`sandpool pool scale` sizes it"
            )
            raise Exit(
                FAILED, f"there is a {word} {self.name!r} in namespace {cluster.namespace} already; {other}"
            ) from error


@dataclass(frozen=True, slots=True)
class Scale:
    name: str
    replicas: int

    def validate(self) -> None:
        _check(self.replicas)

    def run(self, cluster: Cluster, console: Console) -> None:
        before = cluster.get(POOLS, cluster.namespace, self.name)["spec"].get("replicas", 0)
        cluster.patch(POOLS, cluster.namespace, self.name, {"spec": {"replicas": self.replicas}})
        console.write(f"{self.name}\n")
        console.say(f"pool {self.name}: {before} before, {self.replicas} now.")


@dataclass(frozen=True, slots=True)
class Status:
    name: str
    watch: bool = True
    timeout: float | None = 300.0

    def run(self, cluster: Cluster, console: Console) -> None:
        space = cluster.namespace
        body: Json | None = cluster.get(POOLS, space, self.name)
        said = ""
        for body in states(cluster, POOLS, space, self.name, self.timeout):
            if body is None:
                raise Exit(FAILED, f"pool {self.name!r} in namespace {space} was deleted meanwhile")
            found = progress(body)
            if found.done:
                console.write(f"{found.text}\n")
                return
            if not self.watch:
                console.write(f"{found.text}\n")
                raise Exit(
                    FAILED, f"it is not done yet; `sandpool pool rollout status {self.name} -n {space}` waits for it"
                )
            if found.text != said:
                said = found.text
                console.say(said)
        raise Exit(TIMED_OUT, late(POOLS, space, self.name, body, "done", self.timeout))


@pool.command
def create(
    name: Annotated[str, Parameter(help="What to call it.")],
    /,
    *command: Annotated[str, Parameter(help="After --: what runs in each sandbox, instead of `sleep infinity`.")],
    image: Annotated[
        str, Parameter(show_default=False, help="Make a hardened template of this image, called like the pool.")
    ] = "",
    template: Annotated[str, Parameter(show_default=False, completer=templates, help="A template that is there.")] = "",
    replicas: Annotated[int, Parameter(help="How many sandboxes to keep warm.")] = 1,
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Make a warm pool, of a template or of an image. Prints its name."""
    options = Create(name, image, template, replicas, command)
    options.validate()
    with connected(where) as cluster:
        options.run(cluster, Terminal())


@pool.command
def scale(
    name: Pool,
    replicas: Annotated[int, Parameter(help="How many sandboxes to keep warm.")],
    /,
    *,
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Change how many sandboxes a pool keeps warm. Prints its name."""
    options = Scale(name, replicas)
    options.validate()
    with connected(where) as cluster:
        options.run(cluster, Terminal())


@rollout.command
def status(
    name: Pool,
    /,
    *,
    watch: Annotated[bool, Parameter(help="Whether to wait until it is done.")] = True,
    timeout: Timeout = "5m",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Follow a pool until all of its sandboxes are ready and of the present template.

    Exits with 4 when the time is over, and with 1 if it is not done and --no-watch was given.
    """
    options = Status(name, watch, timeout_of(timeout))
    with connected(where) as cluster:
        options.run(cluster, Terminal())


def _check(replicas: int) -> None:
    if not 0 <= replicas <= MOST:
        raise Exit(USAGE, f"{replicas} sandboxes cannot be; write a number from 0 on")
