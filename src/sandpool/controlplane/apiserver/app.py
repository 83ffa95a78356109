"""The request pipeline: parse_request -> authenticate -> authorize -> Seats -> Dispatcher -> handler -> Objects. Every error becomes a Status here.

An unexpected failure is logged; the client sees no more of it than Kubernetes would say.
"""

from __future__ import annotations

import asyncio
from logging import DEBUG, getLogger
from time import perf_counter
from typing import Final

from sandpool.controlplane.apiserver.auth import ADMIN, ANONYMOUS, Authenticator, authorize, is_public
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.dispatch import Dispatcher
from sandpool.controlplane.apiserver.exchange import Exchange
from sandpool.controlplane.apiserver.fairness import Seats
from sandpool.controlplane.apiserver.limits import Memory
from sandpool.controlplane.apiserver.request import parse_query, parse_request
from sandpool.controlplane.apiserver.response import error_response
from sandpool.controlplane.apiserver.routes import Routes
from sandpool.kube.errors import ApiError, BadRequest, InternalError, Unavailable
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics

log = logger(__name__)
_logs = getLogger(__name__).isEnabledFor

STREAMED: Final = frozenset({"attach", "exec", "log", "portforward"})
"""Requests that last as long as the user wants: metrics count only the time until they begin."""
BROKEN: Final = "Internal error occurred: the server's log says more"
NO_MEMORY: Final = "the server is out of memory, please try again later"
NO_MEMORY_RETRY: Final = 2  # seconds


class App:
    """Serves requests; see the module."""

    def __init__(
        self,
        routes: Routes,
        authenticator: Authenticator,
        dispatcher: Dispatcher,
        seats: Seats,
        metrics: Metrics,
        memory: Memory,
    ) -> None:
        self._routes = routes
        self._authenticate = authenticator.authenticate
        self._handler = dispatcher.handler
        self._seats = seats
        self._metrics = metrics
        self._memory = memory

    async def serve(self, exchange: Exchange) -> None:
        """Serves one request to the last byte of its response. It holds a seat of its tenant until then, or until a stream begins."""
        began = perf_counter()
        verb = resource = ""
        lasting = False
        try:
            call = self._call(exchange)
            tenant = call.user.tenant
            if exchange.owner != tenant:
                exchange.own(tenant)
            if not self._seats.enter(tenant):
                await self._seats.wait(tenant)
            exchange.in_flight = True
            info = call.info
            verb = info.verb
            if info.route is not None:  # only served resources become labels, so that clients cannot invent them
                resource = info.route.label
            lasting = verb == "watch" or info.subresource in STREAMED
            response = await self._handler(call)(call)
        except ApiError as error:
            response = error_response(error)
        except RecursionError:
            response = error_response(BadRequest("the object is nested too deeply"))
        except asyncio.CancelledError:
            response = error_response(InternalError("the server stopped before the request was served"))
        except Exception as error:
            response = error_response(self._unexpected(error, exchange))
        if _logs(DEBUG):
            log.debug("request", method=exchange.method, path=exchange.path, code=response.status)
        if lasting:
            exchange.in_flight = False
            self._seats.leave(tenant)
            self._metrics.served(verb, resource, response.status, perf_counter() - began)
        try:
            await response.deliver(exchange)
        except asyncio.CancelledError:  # the server stops, and its grace period is over
            exchange.abandon()
        except Exception as error:
            await self._give_up(error, exchange)
        finally:
            if exchange.in_flight:
                exchange.in_flight = False
                self._seats.leave(tenant)
        if not lasting:
            self._metrics.served(verb, resource, response.status, perf_counter() - began)

    def _unexpected(self, error: Exception, exchange: Exchange) -> ApiError:
        if self._memory.noticed(error):
            return Unavailable(NO_MEMORY, retry_after=NO_MEMORY_RETRY)
        log.error("a request failed", exc=error, method=exchange.method, path=exchange.path)
        return InternalError(BROKEN)

    async def _give_up(self, error: Exception, exchange: Exchange) -> None:
        """A response could not be completed: sends an error instead, if nothing of it was sent."""
        if self._memory.noticed(error):
            try:
                await _instead(Unavailable(NO_MEMORY, retry_after=NO_MEMORY_RETRY), exchange)
            except MemoryError:
                exchange.abandon()  # the client sees a closed connection and retries
            return
        log.error("an answer could not be completed", exc=error, method=exchange.method, path=exchange.path)
        await _instead(InternalError(BROKEN), exchange)

    def _call(self, exchange: Exchange) -> Call:
        path = exchange.path
        if self._memory.short and not is_public(path):
            raise Unavailable(NO_MEMORY, retry_after=NO_MEMORY_RETRY)
        params = parse_query(exchange.query) if exchange.query else {}
        info = parse_request(exchange.method, path, params, self._routes)
        token = exchange.header.get(b"authorization")
        if token is None and is_public(path):
            return Call(info, ANONYMOUS, params, exchange)
        user = self._authenticate(token)
        if user is not ADMIN:  # the admin may do everything
            authorize(user, info)
        return Call(info, user, params, exchange)


async def _instead(error: ApiError, exchange: Exchange) -> None:
    if exchange.begun:
        exchange.abandon()
    else:
        await error_response(error).deliver(exchange)
