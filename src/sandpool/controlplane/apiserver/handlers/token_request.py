"""POST serviceaccounts/NAME/token: issues a token for one namespace. It expires, and is valid only while its account exists."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from sandpool.controlplane.apiserver.access.tokens import AUDIENCE, account_claims, sign
from sandpool.controlplane.apiserver.body import decode_object
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.fairness import wait_for_turn
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.query import write_options
from sandpool.controlplane.apiserver.response import Response, json_response
from sandpool.controlplane.objects.objects import Objects
from sandpool.kube.errors import BadRequest, Cause, Invalid

KIND, VERSION = "TokenRequest", "authentication.k8s.io/v1"
SHORTEST, LONGEST, USUAL = 600, 2**32, 3600


class TokenRequests:
    """Handler of the subresource `token` of service accounts."""

    def __init__(
        self, objects: Objects, limits: Limits, key: bytes, now: Callable[[], datetime], new_id: Callable[[], str]
    ) -> None:
        self._objects = objects
        self._limits = limits
        self._key = key
        self._now = now
        self._new_id = new_id

    async def create(self, call: Call) -> Response:
        options = write_options(call.params, "CreateOptions")
        raw = await call.exchange.read(self._limits.body)
        body = decode_object(raw, call.media, KIND, self._limits.depth)
        if body.get("kind", KIND) != KIND or body.get("apiVersion", VERSION) != VERSION:
            raise BadRequest(f'{body.get("kind")} in version "{body.get("apiVersion")}" cannot be handled as a {KIND}')
        await wait_for_turn(self._objects, call)
        account = self._objects.get(call.resource, call.namespace, call.info.name)
        audiences, seconds = asked_for(body)
        metadata: dict[str, Any] = msgspec.json.decode(account.value)["metadata"]
        now = self._now().astimezone(UTC)
        issued = int(now.timestamp())
        claims = account_claims(
            call.namespace, call.info.name, metadata["uid"], audiences, issued, issued + seconds, self._new_id()
        )
        expires = datetime.fromtimestamp(claims.exp, UTC)
        token = "" if options.dry_run else sign(claims, self._key)
        return json_response(
            {
                "kind": KIND,
                "apiVersion": VERSION,
                "metadata": {
                    "name": call.info.name,
                    "namespace": call.namespace,
                    "uid": metadata["uid"],
                    "creationTimestamp": _moment(now),
                },
                "spec": {"audiences": audiences, "expirationSeconds": seconds},
                "status": {"token": token, "expirationTimestamp": _moment(expires)},
            },
            201,
        )


def asked_for(body: dict[str, Any]) -> tuple[list[str], int]:
    """The audiences and the lifetime in a request, or the defaults."""
    spec = body.get("spec")
    if spec is None:
        spec = {}
    if not isinstance(spec, dict):
        raise BadRequest("spec: must be an object")
    audiences, seconds, bound = spec.get("audiences"), spec.get("expirationSeconds"), spec.get("boundObjectRef")
    if audiences is not None and not (isinstance(audiences, list) and all(isinstance(a, str) for a in audiences)):
        raise BadRequest("spec.audiences: must be a list of text")
    if bound is not None:
        raise _invalid("spec.boundObjectRef", bound, "tokens bound to other objects are not supported by this server")
    if seconds is None:
        seconds = USUAL
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        raise BadRequest("spec.expirationSeconds: must be a whole number")
    if seconds < SHORTEST:
        raise _invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    if seconds > LONGEST:
        raise _invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    return audiences or [AUDIENCE], seconds


def _invalid(field: str, value: Any, why: str) -> Invalid:
    cause = Cause("FieldValueInvalid", f"Invalid value: {msgspec.json.encode(value).decode()}: {why}", field)
    return Invalid(
        f'TokenRequest.authentication.k8s.io "" is invalid: {field}: {cause.message}',
        causes=(cause,),
        details={"group": "authentication.k8s.io", "kind": KIND},
    )


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
