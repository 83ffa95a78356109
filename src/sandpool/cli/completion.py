"""`sandpool completion`, and the completion of kinds and object names. A cluster that does not answer at once completes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Which shell.")],
    /,
) -> None:
    """Print a script that completes commands, flags, and names of claims, pools and other objects.

    bash: put `source <(sandpool completion bash)` into ~/.bashrc. zsh: write it to a file `_sandpool` in a directory of $fpath.
    fish: write it to ~/.config/fish/completions/sandpool.fish.
    """
    from sandpool.cli.main import build

    print(build().generate_completion(shell=shell))


def claims(context: CompletionContext) -> list[str]:
    return _names(context, "claim")


def pools(context: CompletionContext) -> list[str]:
    return _names(context, "pool")


def templates(context: CompletionContext) -> list[str]:
    return _names(context, "template")


def namespaces(context: CompletionContext) -> list[str]:
    return _names(context, "namespace")


def kinds_and_names(context: CompletionContext) -> list[str]:
    """`get cl<TAB>`, `get claim mi<TAB>`, `get claim/mi<TAB>`."""
    from sandpool.cli.exits import Exit
    from sandpool.cli.kinds import OURS, kind_of, word

    kind, slash, _ = context.incomplete.partition("/")
    words = _typed(context)
    try:
        if slash:
            return [f"{kind}/{name}" for name in _names(context, word(kind_of(kind)))]
        if words and "/" not in words[0]:
            return _names(context, word(kind_of(words[0])))
    except Exit:
        return []
    return [*OURS, "pod", "node", "event", "namespace"]


def _typed(context: CompletionContext) -> tuple[str, ...]:
    try:
        return tuple(context["what"].raw_tokens)
    except KeyError:
        return ()


def _names(context: CompletionContext, kind: str) -> list[str]:
    from sandpool.cli.cluster import connected
    from sandpool.cli.cluster_flags import ClusterFlags
    from sandpool.cli.kinds import kind_of

    def given(flag: str) -> Any:
        try:
            return context[flag].value or None
        except (KeyError, AttributeError):
            return None

    where = ClusterFlags(
        namespace=given("--namespace") or "",
        kubeconfig=given("--kubeconfig"),
        context=given("--context") or "",
        data_dir=given("--data-dir"),
    )
    with connected(where) as cluster:
        resource = kind_of(kind)
        found = cluster.list(resource, cluster.namespace if resource.namespaced else "")["items"]
        return [item["metadata"]["name"] for item in found]
