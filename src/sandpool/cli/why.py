"""`sandpool why`: the story of one object, told by the controllers of the cluster."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from sandpool.cli.chapters import KINDS, chapters, word_of
from sandpool.cli.cluster import connected
from sandpool.cli.cluster_flags import ClusterFlags
from sandpool.cli.completing import kinds_and_names
from sandpool.cli.exits import NOT_FOUND, USAGE, Exit
from sandpool.cli.flags import OutputFlag
from sandpool.cli.output.formats import as_json
from sandpool.cli.sources import Source
from sandpool.cli.telling import document, text, timeline


def why(
    what: Annotated[
        str, Parameter(completer=kinds_and_names, help="claim/NAME, sandbox/NAME, pool/NAME or template/NAME.")
    ],
    /,
    *,
    output: OutputFlag = "table",
    stories: Annotated[
        str,
        Parameter(show_default=False, help="Where the controller of a Kubernetes cluster tells stories: HOST:PORT."),
    ] = "",
    controller_namespace: Annotated[
        str, Parameter(help="Where that controller runs: its lease says which replica to ask.")
    ] = "agent-sandbox-system",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Tell what happened to one object and why: what was seen, decided and written, and when.

    Also told are the objects that it depends on (a claim's sandbox, its pod and its pool), their conditions and their Events.
    Controllers remember in memory, so a story begins when the cluster was started. Exits with 3 if there is no such object
    and none is remembered.
    """
    word, name = _asked(what)
    with connected(where) as cluster:
        source = Source(cluster.connection.cluster, controller_namespace, running=cluster.running, stories=stories)
        _tell(source, word, cluster.namespace, name, output)


def _tell(source: Source, word: str, namespace: str, name: str, output: str) -> None:
    found = chapters(source.get, word, namespace, name)
    told = timeline(found)
    if found[0].body is None and not told:
        raise Exit(
            NOT_FOUND,
            f"there is no {word} {name!r} in namespace {namespace!r}, and none is remembered; "
            f"`sandpool get {KINDS[word].plural} -A` lists those there are",
        )
    if output == "json":
        print(as_json(document(found, told)))
        return
    print(text(found, told), end="")
    if not found[0].entries:
        print(f"sandpool: {source.silence(found)}", file=sys.stderr)


def _asked(what: str) -> tuple[str, str]:
    kind, slash, name = what.partition("/")
    word = word_of(kind)
    if not slash or not name or "/" in name or word is None:
        raise Exit(USAGE, f"{what!r} names no object; write KIND/NAME with one of the kinds {', '.join(KINDS)}")
    return word, name
