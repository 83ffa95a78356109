"""The application: every request passes here, and every error becomes a Status here.

A request passes authenticate -> parse_request -> authorise -> Dispatcher -> handler -> Objects. Nothing that fails on the
way leaves a trace in the answer beyond what Kubernetes would say.
"""

from __future__ import annotations

import asyncio
from logging import DEBUG, getLogger
from time import perf_counter
from typing import Final

from sandpool.controlplane.apiserver.answer import of_error
from sandpool.controlplane.apiserver.authenticate import Authenticator
from sandpool.controlplane.apiserver.authorise import authorise, open_to_all
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.dispatch import Dispatcher
from sandpool.controlplane.apiserver.exchange import Exchange
from sandpool.controlplane.apiserver.identity import ADMIN, ANONYMOUS
from sandpool.controlplane.apiserver.limits import Memory
from sandpool.controlplane.apiserver.request import parse_query, parse_request
from sandpool.controlplane.apiserver.routes import Routes
from sandpool.controlplane.apiserver.seats import Seats
from sandpool.kube.errors import ApiError, BadRequest, InternalError, Unavailable
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics

log = logger(__name__)
_logs = getLogger(__name__).isEnabledFor

STREAMED: Final = frozenset({"attach", "exec", "log", "portforward"})
"""What lasts as long as its user likes: how long says nothing about the server, so only the time until it begins counts."""
BROKEN: Final = "Internal error occurred: the server's log says more"
NO_MEMORY: Final = "the server is out of memory, please try again later"
NO_MEMORY_RETRY: Final = 2  # seconds


class App:
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
        """From the request to the last byte of its answer. Its tenant has one seat less for as long, or until a stream begins."""
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
            exchange.seated = True
            info = call.info
            verb = info.verb
            if info.route is not None:  # only what is served is counted by name, so that nobody can invent labels
                resource = info.route.label
            lasting = verb == "watch" or info.subresource in STREAMED
            reply = await self._handler(call)(call)
        except ApiError as error:
            reply = of_error(error)
        except RecursionError:
            reply = of_error(BadRequest("the object is nested too deeply"))
        except asyncio.CancelledError:
            reply = of_error(InternalError("the server stopped before the request was served"))
        except Exception as error:
            reply = of_error(self._unexpected(error, exchange))
        if _logs(DEBUG):
            log.debug("request", method=exchange.method, path=exchange.path, code=reply.status)
        if lasting:
            exchange.seated = False
            self._seats.leave(tenant)
            self._metrics.served(verb, resource, reply.status, perf_counter() - began)
        try:
            await reply.deliver(exchange)
        except asyncio.CancelledError:  # the server stops, and has waited for long enough
            exchange.abandon()
        except Exception as error:
            await self._give_up(error, exchange)
        finally:
            if exchange.seated:
                exchange.seated = False
                self._seats.leave(tenant)
        if not lasting:
            self._metrics.served(verb, resource, reply.status, perf_counter() - began)

    def _unexpected(self, error: Exception, exchange: Exchange) -> ApiError:
        if self._memory.noticed(error):
            return Unavailable(NO_MEMORY, retry_after=NO_MEMORY_RETRY)
        log.error("a request failed", exc=error, method=exchange.method, path=exchange.path)
        return InternalError(BROKEN)

    async def _give_up(self, error: Exception, exchange: Exchange) -> None:
        """To an answer that could not be completed: another one in its place, if nothing of it was sent."""
        if self._memory.noticed(error):
            try:
                await _instead(Unavailable(NO_MEMORY, retry_after=NO_MEMORY_RETRY), exchange)
            except MemoryError:
                exchange.abandon()  # the client sees a connection that was closed, and tries again
            return
        log.error("an answer could not be completed", exc=error, method=exchange.method, path=exchange.path)
        await _instead(InternalError(BROKEN), exchange)

    def _call(self, exchange: Exchange) -> Call:
        path = exchange.path
        if self._memory.short and not open_to_all(path):
            raise Unavailable(NO_MEMORY, retry_after=NO_MEMORY_RETRY)
        params = parse_query(exchange.query) if exchange.query else {}
        info = parse_request(exchange.method, path, params, self._routes)
        token = exchange.header.get(b"authorization")
        if token is None and open_to_all(path):
            return Call(info, ANONYMOUS, params, exchange)
        user = self._authenticate(token)
        if user is not ADMIN:  # who may do everything
            authorise(user, info)
        return Call(info, user, params, exchange)


async def _instead(error: ApiError, exchange: Exchange) -> None:
    if exchange.begun:
        exchange.abandon()
    else:
        await of_error(error).deliver(exchange)
