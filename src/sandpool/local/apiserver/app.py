"""The ASGI application: every request passes here, and every error becomes a Status here.

A request passes authenticate -> parse_request -> authorise -> Dispatcher -> handler -> Objects. Nothing that fails on the
way leaves a trace in the answer beyond what Kubernetes would say.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

from sandpool.kube.errors import ApiError, BadRequest, InternalError, TooManyRequests
from sandpool.local.apiserver.answer import Receive, Send, of_error
from sandpool.local.apiserver.authenticate import Authenticator
from sandpool.local.apiserver.authorise import authorise, open_to_all
from sandpool.local.apiserver.call import Call, Scope
from sandpool.local.apiserver.dispatch import Dispatcher
from sandpool.local.apiserver.identity import User
from sandpool.local.apiserver.limits import Limits
from sandpool.local.apiserver.request import parse_query, parse_request
from sandpool.local.apiserver.routes import Routes
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics

log = logger(__name__)

ANONYMOUS: Final = User("system:anonymous", "", ("system:unauthenticated",))
STREAMED: Final = frozenset({"attach", "exec", "log", "portforward"})
"""What lasts as long as its user likes: how long says nothing about the server, so only the time until it begins counts."""
BUSY: Final = "too many requests are being served, please try again later"


class App:
    def __init__(
        self, routes: Routes, authenticator: Authenticator, dispatcher: Dispatcher, limits: Limits, metrics: Metrics
    ) -> None:
        self._routes = routes
        self._authenticate = authenticator.authenticate
        self._handler = dispatcher.handler
        self._limits = limits
        self._metrics = metrics
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"cannot serve {scope['type']}")
        began = perf_counter()
        verb = resource = ""
        lasting = False
        self._in_flight += 1
        try:
            if self._in_flight > self._limits.requests:
                raise TooManyRequests(BUSY, retry_after=1)
            call = self._call(scope, receive)
            verb, resource = call.info.verb, _label(call)
            lasting = verb == "watch" or call.info.subresource in STREAMED
            reply = await self._handler(call)(call)
        except ApiError as error:
            reply = of_error(error)
        except RecursionError:
            reply = of_error(BadRequest("the object is nested too deeply"))
        except Exception as error:
            log.error("a request failed", exc=error, method=scope["method"], path=scope["path"])
            reply = of_error(InternalError("Internal error occurred: the server's log says more"))
        finally:
            self._in_flight -= 1
        log.debug("request", method=scope["method"], path=scope["path"], code=reply.status)
        if not lasting:
            await reply.deliver(receive, send)
            self._metrics.served(verb, resource, reply.status, perf_counter() - began)
        else:
            self._metrics.served(verb, resource, reply.status, perf_counter() - began)
            await reply.deliver(receive, send)

    def _call(self, scope: Scope, receive: Receive) -> Call:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        raw: bytes = scope["query_string"]
        params = parse_query(raw) if raw else {}
        path: str = scope["path"]
        info = parse_request(scope["method"], path, params, self._routes)
        if open_to_all(path) and b"authorization" not in headers:
            return Call(info, ANONYMOUS, params, headers, receive, scope)
        user = self._authenticate(headers.get(b"authorization"))
        authorise(user, info)
        return Call(info, user, params, headers, receive, scope)


def _label(call: Call) -> str:
    """What a request is counted under: a kind that is served, or nothing, so that nobody can invent labels."""
    route = call.info.route
    return route.resource.group_resource if route is not None else ""
