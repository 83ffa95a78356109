"""`sandpool logs`: the output of a sandbox's main process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from cyclopts import Parameter

from sandpool.cli.cluster import Cluster, connected, path
from sandpool.cli.cluster_flags import ClusterFlags
from sandpool.cli.completion import claims
from sandpool.cli.console import Console, Terminal
from sandpool.cli.exits import FAILED, USAGE, Exit
from sandpool.cli.kinds import split
from sandpool.cli.objects.resolve import sandbox_of
from sandpool.cli.sandbox.attach import write
from sandpool.cli.units import duration
from sandpool.kube.errors import BadRequest, NotFound
from sandpool.model.kinds import CLAIMS, PODS


@dataclass(frozen=True, slots=True)
class Logs:
    name: str
    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: float | None = None

    def validate(self) -> None:
        if self.tail is not None and self.tail < 0:
            raise Exit(USAGE, f"--tail {self.tail} is not a number of lines; write 0 or more")

    def run(self, cluster: Cluster, console: Console) -> None:
        pod, container = self._pod(cluster, console)
        query: dict[str, Any] = {
            "container": container,
            "follow": "true" if self.follow else "",
            "previous": "true" if self.previous else "",
            "timestamps": "true" if self.timestamps else "",
            "tailLines": "" if self.tail is None else self.tail,
            "sinceSeconds": "" if self.since is None else max(1, int(self.since)),
        }
        asked = urlencode({key: value for key, value in query.items() if value != ""})
        try:
            with cluster.stream(f"{path(PODS, cluster.namespace, pod, 'log')}?{asked}") as pieces:
                for piece in pieces:
                    write(1, piece)
        except NotFound as error:
            raise Exit(FAILED, f"{self.name} has no pod now; `sandpool describe {self._shown}` shows why") from error
        except BadRequest as error:  # the pod is starting, or has no such container
            raise Exit(
                FAILED, f"{error}; `sandpool describe pod/{pod}` shows its containers and their states"
            ) from error

    def _pod(self, cluster: Cluster, console: Console) -> tuple[str, str]:
        kind, name = split(self.name, CLAIMS)
        if kind == PODS:
            return name, self.container
        box = sandbox_of(cluster, self.name)
        containers = [one["name"] for one in box.body["spec"]["podTemplate"]["spec"].get("containers") or ()]
        if len(containers) > 1 and not self.container:
            console.say(f"Container {containers[0]}; -c chooses another of {', '.join(containers)}.")
            return box.pod, str(containers[0])
        return box.pod, self.container

    @property
    def _shown(self) -> str:
        return self.name if "/" in self.name else f"claim/{self.name}"


def logs(
    name: Annotated[str, Parameter(completer=claims, help="A claim, sandbox/NAME or pod/NAME.")],
    /,
    *,
    container: Annotated[
        str,
        Parameter(
            name=["--container", "-c"],
            show_default=False,
            help="Container, for a pod with several. Default: the first.",
        ),
    ] = "",
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="", help="Keep printing new lines.")] = False,
    previous: Annotated[
        bool, Parameter(name=["--previous", "-p"], negative="", help="Logs of the run before the last restart.")
    ] = False,
    timestamps: Annotated[bool, Parameter(negative="", help="Prefix each line with its time.")] = False,
    tail: Annotated[int | None, Parameter(help="Only this many of the newest lines.")] = None,
    since: Annotated[str, Parameter(show_default=False, help="Only lines newer than this, such as 10m.")] = "",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Show the logs of a sandbox's main process, which its template names; not of what `run` and `exec` start."""
    age = duration(since, "--since") if since else None
    options = Logs(name, container, follow, previous, timestamps, tail, age)
    options.validate()
    with connected(where) as cluster:
        options.run(cluster, Terminal())
