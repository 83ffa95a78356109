"""The errors of an API server, and of the way to it.

SandpoolError (base/errors.py)
├── ApiError(status, reason, message, causes)   an error response of an API server
│   ├── BadRequest 400          ├── Unauthorized 401       ├── Forbidden 403        ├── NotFound 404
│   ├── MethodNotAllowed 405    ├── NotAcceptable 406      ├── Conflict 409         ├── AlreadyExists 409
│   ├── Gone 410 (relist)       ├── RequestTooLarge 413    ├── UnsupportedMedia 415 ├── Invalid 422
│   ├── TooManyRequests 429 (retry_after)                  ├── InternalError 500
│   ├── Unavailable 503         ├── ServerTimeout 504      └── InsufficientStorage 507 (surely not processed)
├── Unreachable            no answer: it is not known whether the request was processed
│   ├── Unreadable         an answer that cannot be used: cut short, too large, not JSON, not of the expected type
│   └── Refused            surely not processed: the connection was never made
│       └── Untrusted      nor will it be: one side does not trust the other's certificate
└── ConfigError            a kubeconfig or credential that cannot be used; names the file and the field
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sandpool.base.errors import SandpoolError


class ConfigError(SandpoolError):
    """A configuration that cannot be used; the message names the file, the field and the next step."""


class Unreachable(SandpoolError):
    """No answer came: the request may or may not have been processed."""


class Refused(Unreachable):
    """The connection was never made, so the request was surely not processed."""


class Untrusted(Refused):
    """The TLS handshake failed, so the request was surely not processed; trying again does not help."""


class Unreadable(Unreachable):
    """An answer came that cannot be used: cut short, too large, not JSON, or not of the expected type."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing wrong with an object: metav1.StatusCause."""

    reason: str  # FieldValueInvalid, FieldValueRequired, ...
    message: str
    field: str = ""


class ApiError(SandpoolError):
    """An answer of an API server that is not success. One subclass for each reason that callers distinguish."""

    status: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"

    def __init__(
        self,
        message: str,
        *,
        causes: tuple[Cause, ...] = (),
        details: dict[str, Any] | None = None,
        retry_after: int | None = None,
        status: int | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.causes = causes
        self.details = details or {}  # name, group, kind, uid as in metav1.StatusDetails
        self.retry_after = retry_after
        self.code = status or self.status
        self.word = reason or self.reason

    def body(self) -> dict[str, Any]:
        """This error as a metav1.Status, the way it travels."""
        details: dict[str, Any] = dict(self.details)
        if self.causes:
            details["causes"] = [
                {"reason": c.reason, "message": c.message, **({"field": c.field} if c.field else {})}
                for c in self.causes
            ]
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.word,
        }
        if details:
            status["details"] = details
        status["code"] = self.code
        return status


class BadRequest(ApiError):
    """The request cannot be understood (400)."""

    status, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """The server does not know the credential (401)."""

    status, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    """The credential may not do this, or a quota is used up (403)."""

    status, reason = 403, "Forbidden"


class NotFound(ApiError):
    """There is no such object, namespace or kind (404)."""

    status, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    """The server does not offer this for the kind (405)."""

    status, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    """The server cannot answer in the form that was asked for (406)."""

    status, reason = 406, "NotAcceptable"


class Conflict(ApiError):
    """The object changed meanwhile, or a precondition does not hold (409)."""

    status, reason = 409, "Conflict"


class AlreadyExists(ApiError):
    """An object of this name is there already (409)."""

    status, reason = 409, "AlreadyExists"


class Gone(ApiError):
    """The revision asked for is compacted away: list again (410)."""

    status, reason = 410, "Expired"


class RequestTooLarge(ApiError):
    """The request has more bytes, or a patch more operations, than the server takes (413)."""

    status, reason = 413, "RequestEntityTooLarge"


class UnsupportedMedia(ApiError):
    """The server does not take a body of this type (415)."""

    status, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    """With `causes` the object breaks its schema; without, a JSON patch could not be applied (422)."""

    status, reason = 422, "Invalid"


class TooManyRequests(ApiError):
    """The server is too busy (429); `retry_after` is in how many seconds to come back."""

    status, reason = 429, "TooManyRequests"


class InternalError(ApiError):
    """The server failed (500)."""

    status, reason = 500, "InternalError"


class Unavailable(ApiError):
    """The server cannot answer now (503)."""

    status, reason = 503, "ServiceUnavailable"


class ServerTimeout(ApiError):
    """The server did not finish in time (504)."""

    status, reason = 504, "Timeout"


class InsufficientStorage(ApiError):
    """The disk of the server is full: nothing was stored, and what makes room still is (507)."""

    status, reason = 507, "InsufficientStorage"


_BY_REASON: dict[str, type[ApiError]] = {cls.reason: cls for cls in ApiError.__subclasses__()} | {"Gone": Gone}
_BY_CODE: dict[int, type[ApiError]] = {cls.status: cls for cls in ApiError.__subclasses__() if cls is not AlreadyExists}


def from_status(code: int, body: dict[str, Any], retry_after: int | None = None) -> ApiError:
    """The error that a Status body (or the bare code of a body that is none) stands for."""
    reason = body.get("reason")
    details = dict(body.get("details") or {})
    causes = tuple(
        Cause(c.get("reason", ""), c.get("message", ""), c.get("field", "")) for c in details.pop("causes", None) or ()
    )
    retry_after = details.pop("retryAfterSeconds", retry_after)
    code = body.get("code") or code
    cls = _BY_REASON.get(reason or "") or _BY_CODE.get(code) or ApiError
    message = body.get("message") or f"the server answered {code}"
    return cls(message, causes=causes, details=details, retry_after=retry_after, status=code, reason=reason)


def over_quota(error: ApiError) -> bool:
    """Whether a ResourceQuota is what forbids it, and no lack of permission. Servers say that in words only."""
    return isinstance(error, Forbidden) and any(
        f" is forbidden: {words} quota: " in error.message for words in ("exceeded", "failed")
    )
