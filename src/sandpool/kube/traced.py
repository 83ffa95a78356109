"""An Api whose calls are part of the story and of the trace of the reconcile that makes them: what was written, what came of it.

Nothing is kept here: outside a reconcile, and without a tracer, a call only passes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from sandpool.kube.api import Api
from sandpool.kube.around import Around
from sandpool.model.metadata import Object
from sandpool.model.resource import Resource
from sandpool.telemetry.reconcile_history import ASKED, TRIED, WROTE, note
from sandpool.telemetry.trace import NullTracer, Tracer

R = TypeVar("R")

_SAID = {"patch_status": "patch status of"}


class Narrated(Around):
    def __init__(self, api: Api, tracer: Tracer = NullTracer()) -> None:
        super().__init__(api)
        self._tracer = None if isinstance(tracer, NullTracer) else tracer

    async def _seen(
        self,
        verb: str,
        resource: Resource[Any],
        what: str | Object | Mapping[str, Any],
        namespace: str,
        call: Callable[[], Awaitable[R]],
    ) -> R:
        name = what if isinstance(what, str) else _name(what)
        said = f"{_SAID.get(verb, verb)} {resource.plural}"
        try:
            if self._tracer is None:
                answer = await call()
            else:
                with self._tracer.span(said, namespace=namespace, object=name):
                    answer = await call()
        except BaseException as error:  # also when cancelled: that it was tried is what one will want to know
            note(f"{TRIED} {said}/{name}: {type(error).__name__}")
            raise
        note(f"{ASKED if verb == 'get' else WROTE} {said}/{name}")
        return answer


def _name(body: Object | Mapping[str, Any]) -> str:
    if isinstance(body, Mapping):
        metadata = body.get("metadata") or {}
        return str(metadata.get("name") or metadata.get("generateName", ""))
    return body.metadata.name or body.metadata.generate_name
