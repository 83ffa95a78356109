"""Finds the handler of a request: one table, looked up by verb and subresource."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.fairness import wait_for_turn
from sandpool.controlplane.apiserver.handlers.delete import Deletes
from sandpool.controlplane.apiserver.handlers.public import Public
from sandpool.controlplane.apiserver.handlers.read import Reads
from sandpool.controlplane.apiserver.handlers.reviews import Reviews
from sandpool.controlplane.apiserver.handlers.runtime import Runtime
from sandpool.controlplane.apiserver.handlers.token_request import TokenRequests
from sandpool.controlplane.apiserver.handlers.usage import UsagePages
from sandpool.controlplane.apiserver.handlers.watch import Watches
from sandpool.controlplane.apiserver.handlers.write import Writes
from sandpool.controlplane.apiserver.response import Response, page_not_found
from sandpool.controlplane.apiserver.routes import OF_PODS, Routes
from sandpool.controlplane.objects.objects import Objects
from sandpool.kube.errors import MethodNotAllowed, NotFound

Handler = Callable[[Call], Awaitable[Response]]

NOT_SERVED: Final = "the server could not find the requested resource"
NOT_ALLOWED: Final = "the server does not allow this method on the requested resource"
_ACROSS: Final = frozenset({"list", "watch"})  # verbs of namespaced kinds that work across namespaces


class Dispatcher:
    """Finds the handler of each request."""

    def __init__(
        self,
        routes: Routes,
        objects: Objects,
        reads: Reads,
        writes: Writes,
        deletes: Deletes,
        watches: Watches,
        reviews: Reviews,
        tokens: TokenRequests,
        public: Public,
        runtime: Runtime,
        usage: UsagePages | None = None,
    ) -> None:
        self._routes = routes
        self._objects = objects
        self._public = public
        self._reviews = reviews
        self._runtime = runtime
        self._usage = usage
        whole = {"get": reads.get, "update": writes.update, "patch": writes.patch}
        self._handlers: dict[tuple[str, str], Handler] = {
            ("list", ""): reads.list,
            ("watch", ""): watches.watch,
            ("create", ""): writes.create,
            ("delete", ""): deletes.delete,
            ("deletecollection", ""): deletes.delete_collection,
            ("update", "finalize"): writes.update,
            ("create", "token"): tokens.create,
            ("create", "binding"): writes.bind,
            ("create", "eviction"): deletes.evict,
        }
        for part in ("", "status", "scale"):
            self._handlers |= {(verb, part): handler for verb, handler in whole.items()}
        connects = {(verb, sub.name): self._connect for sub in OF_PODS for verb in sub.verbs}
        self._handlers = connects | self._handlers

    def handler(self, call: Call) -> Handler:
        info = call.info
        route = info.route
        if route is None:
            if info.review is not None:
                return self._reviews.serve
            return self._elsewhere if info.plural else self._public.serve
        if info.subresource:
            sub = route.subresources.get(info.subresource)
            if sub is None:
                raise NotFound(NOT_SERVED)
            if info.verb not in sub.verbs:
                raise MethodNotAllowed(NOT_ALLOWED)
        elif info.verb not in route.verbs or not _fits(call):
            raise MethodNotAllowed(NOT_ALLOWED)
        if route.measured and self._usage is not None:
            return self._usage.serve
        return self._handlers[info.verb, info.subresource]

    async def _elsewhere(self, call: Call) -> Response:
        """Responds for a kind that is not served: with a Status if its group is served, else with a plain 404."""
        version = (call.info.group, call.info.version)
        if version in self._routes.kinds or version in self._routes.reviews:
            raise NotFound(NOT_SERVED)
        return page_not_found()

    async def _connect(self, call: Call) -> Response:
        """Passes a stream on to the node; the pod must exist."""
        await wait_for_turn(self._objects, call)
        pod = self._objects.get(call.resource, call.namespace, call.info.name)
        return await self._runtime.serve(call, pod.value)


def _fits(call: Call) -> bool:
    """Whether the path fits the verb: a create names no object, an update names one, and only list and watch work across namespaces."""
    info = call.info
    if info.verb == "create":
        named = not info.name
    elif info.verb in ("update", "patch"):
        named = bool(info.name)
    else:
        named = True
    across = call.resource.namespaced and not info.namespace
    return named and (not across or info.verb in _ACROSS)
