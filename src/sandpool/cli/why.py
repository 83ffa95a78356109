"""`sandpool why`: the story of one object, told by the controllers of the running cluster."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from sandpool.cli.chapters import KINDS, chapters, word_of
from sandpool.cli.exits import NOT_FOUND, USAGE, Exit
from sandpool.cli.flags import DataDirFlag, OutputFlag, data_dir
from sandpool.cli.sources import Kubernetes, Source, ThisMachine
from sandpool.cli.telling import document, text, timeline


def why(
    what: Annotated[str, Parameter(help="claim/NAME, sandbox/NAME, pool/NAME or template/NAME.")],
    /,
    *,
    namespace: Annotated[
        str, Parameter(name=["--namespace", "-n"], env_var="SANDPOOL_NAMESPACE", help="Where the object is.")
    ] = "default",
    output: OutputFlag = "table",
    data_dir_: DataDirFlag = None,
    kubeconfig: Annotated[
        Path | None, Parameter(help="Ask this Kubernetes cluster, not the one of this machine.")
    ] = None,
    context: Annotated[str, Parameter(show_default=False, help="A context of the kubeconfig, likewise.")] = "",
    stories: Annotated[
        str, Parameter(show_default=False, help="Where the controller of that cluster tells stories: HOST:PORT.")
    ] = "",
    controller_namespace: Annotated[
        str, Parameter(help="Where that controller runs: its lease says which replica to ask.")
    ] = "agent-sandbox-system",
) -> None:
    """Tell what happened to one object and why: what was seen, decided and written, and when.

    Also told are the objects that it depends on (a claim's sandbox, its pod and its pool), their conditions and their Events.
    Controllers remember in memory, so a story begins when the cluster was started. Exits with 3 if there is no such object
    and none is remembered.
    """
    word, name = _asked(what)
    with _source(data_dir_, kubeconfig, context, stories, controller_namespace) as source:
        _tell(source, word, namespace, name, output)


def _source(
    directory: Path | None, kubeconfig: Path | None, context: str, stories: str, namespace: str
) -> AbstractContextManager[Source]:
    if kubeconfig is not None or context or stories:
        return Kubernetes.at(kubeconfig, context, stories, namespace)
    return nullcontext(ThisMachine.found(data_dir(directory)))


def _tell(source: Source, word: str, namespace: str, name: str, output: str) -> None:
    found = chapters(source.get, word, namespace, name)
    told = timeline(found)
    if found[0].body is None and not told:
        raise Exit(
            NOT_FOUND,
            f"there is no {word} {name!r} in namespace {namespace!r}, and none is remembered; "
            f"`kubectl get {KINDS[word].plural} -A` lists those there are",
        )
    if output == "json":
        print(msgspec.json.encode(document(found, told)).decode())
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
