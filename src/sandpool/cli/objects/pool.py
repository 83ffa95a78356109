"""`sandpool pool`: creates and scales warm pools, and follows their rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import App, Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import ClusterFlags, Timeout, timeout_of
from sandpool.cli.completion import pools, templates
from sandpool.cli.console import Console, Terminal
from sandpool.cli.exits import FAILED, TIMED_OUT, USAGE, Exit
from sandpool.cli.objects.conditions import condition_list
from sandpool.cli.objects.wait import late, states
from sandpool.kube.errors import AlreadyExists
from sandpool.model.kinds import POOLS, TEMPLATES
from sandpool.model.names import dns_subdomain

Json = dict[str, Any]


def pool_body(name: str, template: str, replicas: int) -> Json:
    return {"metadata": {"name": name}, "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": template}}}


def template_body(name: str, image: str, command: tuple[str, ...] = ()) -> Json:
    """The hardened template of a local cluster's first pool, with another image and perhaps another command."""
    from sandpool.install.first_pool import template_body as first_template

    body = first_template()
    body["metadata"]["name"] = name
    main = body["spec"]["podTemplate"]["spec"]["containers"][0]
    main["image"] = image
    if command:
        main["command"] = list(command)
    return body


_REPLACES = ("Recreate", "RollingUpdate")


@dataclass(frozen=True, slots=True)
class Progress:
    done: bool
    text: str


def progress(pool: Json) -> Progress:
    """Whether it is done: the controller has observed this spec, all replicas are ready, and none is of an older template, if the pool's
    strategy replaces those."""
    metadata, spec, status = pool["metadata"], pool.get("spec") or {}, pool.get("status") or {}
    name, wanted = metadata["name"], spec.get("replicas", 1)
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        return Progress(False, f"pool {name}: the controller has not observed the latest change yet")
    replaces = (spec.get("updateStrategy") or {}).get("type") in _REPLACES
    ready = status.get("updatedReadyReplicas" if replaces else "readyReplicas", 0)
    there, fresh = status.get("replicas", 0), status.get("updatedReplicas", 0)
    if ready >= wanted and there <= wanted:
        return Progress(
            True, f"pool {name}: {ready} of {wanted} ready" + ("" if fresh >= wanted else _older(there - fresh))
        )
    parts = [f"{status.get('readyReplicas', 0)} of {wanted} ready"]
    parts += [f"{fresh} of the current template"] if replaces and fresh < wanted else []
    parts += [f"{there - wanted} too many"] if there > wanted else []
    return Progress(False, f"pool {name}: {', '.join(parts)}{_trouble(pool)}")


def _older(count: int) -> str:
    return f"; {count} of an older template, which stay until they are claimed" if count > 0 else ""


def _trouble(pool: Json) -> str:
    for one in condition_list(pool):
        if one.get("type") == "Progressing" and one.get("status") != "True" and one.get("reason") != "UpToDate":
            return f"; {one.get('reason')}: {one.get('message', '')}"
    return ""


Pool = Annotated[str, Parameter(completer=pools, help="The pool.")]
MOST = 2**31 - 1

pool = App(name="pool", help="Create and scale warm pools, and follow their rollouts.")
rollout = App(name="rollout", help="Follow a pool's rollout.")
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
                USAGE,
                "name the image or the template of its sandboxes: --image IMAGE, or --template NAME of an existing one",
            )
        if self.command and self.template:
            raise Exit(USAGE, "the template sets the command; use a command only with --image")
        _check(self.replicas)

    def run(self, cluster: Cluster, console: Console) -> None:
        space = cluster.namespace
        if self.image:
            self._make(cluster, TEMPLATES, template_body(self.name, self.image, self.command))
        else:
            cluster.get(TEMPLATES, space, self.template)  # exits if there is none
        self._make(cluster, POOLS, pool_body(self.name, self.template or self.name, self.replicas))
        console.write(f"{self.name}\n")
        console.say(f"`sandpool pool rollout status {self.name} -n {space}` waits until its sandboxes are ready.")

    def _make(self, cluster: Cluster, kind: Any, body: Json) -> None:
        try:
            cluster.create(kind, cluster.namespace, body)
        except AlreadyExists as error:
            word = "template" if kind == TEMPLATES else "pool"
            other = (
                "choose another name for the pool, or use it with --template"
                if kind == TEMPLATES
                else "`sandpool pool scale` changes its size"
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
        console.say(f"pool {self.name}: scaled from {before} to {self.replicas}.")


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
    name: Annotated[str, Parameter(help="Name of the new pool.")],
    /,
    *command: Annotated[str, Parameter(help="After --: what runs in each sandbox, instead of `sleep infinity`.")],
    image: Annotated[
        str, Parameter(show_default=False, help="Create a hardened template from this image, with the pool's name.")
    ] = "",
    template: Annotated[str, Parameter(show_default=False, completer=templates, help="An existing template.")] = "",
    replicas: Annotated[int, Parameter(help="How many sandboxes to keep warm.")] = 1,
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Create a warm pool from a template or an image. Prints its name."""
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
    watch: Annotated[bool, Parameter(help="Wait until it is done.")] = True,
    timeout: Timeout = "5m",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Follow a pool until all of its sandboxes are ready and use the current template.

    Exits with 4 on timeout, and with 1 if it is not done and --no-watch was given.
    """
    options = Status(name, watch, timeout_of(timeout))
    with connected(where) as cluster:
        options.run(cluster, Terminal())


def _check(replicas: int) -> None:
    if not 0 <= replicas <= MOST:
        raise Exit(USAGE, f"{replicas} is not a number of sandboxes; write 0 or more")
