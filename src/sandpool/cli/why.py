"""`sandpool why`: the story of one object, told by the controllers of the running cluster."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from sandpool.assembly.data_dir import Running
from sandpool.cli.chapters import KINDS, chapters, word_of
from sandpool.cli.exits import FAILED, NOT_FOUND, USAGE, Exit
from sandpool.cli.flags import DataDirFlag, OutputFlag, data_dir
from sandpool.cli.http import request
from sandpool.cli.telling import document, nothing_remembered, text, timeline
from sandpool.kube.errors import ApiError, NotFound

NOT_IMPLEMENTED = 501


def why(
    what: Annotated[str, Parameter(help="claim/NAME, sandbox/NAME, pool/NAME or template/NAME.")],
    /,
    *,
    namespace: Annotated[
        str, Parameter(name=["--namespace", "-n"], env_var="SANDPOOL_NAMESPACE", help="Where the object is.")
    ] = "default",
    output: OutputFlag = "table",
    data_dir_: DataDirFlag = None,
) -> None:
    """Tell what happened to one object and why: what was seen, decided and written, and when.

    Also told are the objects that it depends on (a claim's sandbox, its pod and its pool), their conditions and their Events.
    Controllers remember in memory, so a story begins when the cluster was started. Exits with 3 if there is no such object
    and none is remembered.
    """
    word, name = _asked(what)
    directory = data_dir(data_dir_)
    running = directory.read_running()
    if running is None:
        raise Exit(NOT_FOUND, f"no cluster runs in {directory.root}. Start one with `sandpool up`.")
    found = chapters(lambda path: _get(running, path), word, namespace, name)
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
        print(f"sandpool: {nothing_remembered(found, running)}", file=sys.stderr)


def _asked(what: str) -> tuple[str, str]:
    kind, slash, name = what.partition("/")
    word = word_of(kind)
    if not slash or not name or "/" in name or word is None:
        raise Exit(USAGE, f"{what!r} names no object; write KIND/NAME with one of the kinds {', '.join(KINDS)}")
    return word, name


def _get(running: Running, path: str) -> Any:
    """The JSON at a path; None where nothing is, also where no stories are kept."""
    try:
        return request(running, "GET", path)
    except NotFound:
        return None
    except ApiError as error:
        if error.code == NOT_IMPLEMENTED:
            return None
        raise Exit(FAILED, f"{running.api} answered: {error}") from error
