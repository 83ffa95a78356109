"""Options of exec, attach, logs and port-forward, parsed from the query. Bad values are refused with Kubernetes' messages. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import parse_qsl

from sandpool.controlplane.apiserver.query import integer
from sandpool.controlplane.apiserver.request import Params, truth
from sandpool.kube.errors import BadRequest, Cause, Invalid
from sandpool.model import times


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """Options of exec and attach."""

    container: str = ""
    argv: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


def command_options(params: Params, raw: bytes, *, needs_command: bool) -> CommandOptions:
    tty = truth(params, "tty")
    options = CommandOptions(
        container=params.get("container", ""),
        argv=tuple(every(raw, "command")) if needs_command else (),
        stdin=truth(params, "stdin"),
        # A terminal has no separate stderr. By default attach shows both outputs, as in Kubernetes.
        stdout=truth(params, "stdout") or (not needs_command and "stdout" not in params),
        stderr=(truth(params, "stderr") or (not needs_command and "stderr" not in params)) and not tty,
        tty=tty,
    )
    if not (options.stdin or options.stdout or options.stderr):
        raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")
    if needs_command and not options.argv:
        raise BadRequest("you must specify at least one command for exec: ?command=NAME&command=ARGUMENT")
    if any("\0" in word for word in options.argv):
        raise BadRequest("command: a word of a command may not contain a zero byte")
    return options


def every(raw: bytes, name: str) -> list[str]:
    """All values of a repeated parameter, in order."""
    pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
    return [value for key, value in pairs if key == name]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Options of a log."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    limit: int | None = None
    since: datetime | None = None


def log_options(params: Params, pod: str, now: datetime) -> LogOptions:
    tail, limit, seconds = (integer(params, name) for name in ("tailLines", "limitBytes", "sinceSeconds"))
    moment = _moment(params)
    causes = []
    if tail is not None and tail < 0:
        causes.append(_wrong("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        causes.append(_wrong("limitBytes", limit, "must be greater than 0"))
    if seconds is not None and moment is not None:
        message = "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
        causes.append(Cause("FieldValueForbidden", message, ""))
    elif seconds is not None and seconds < 1:
        causes.append(_wrong("sinceSeconds", seconds, "must be greater than 0"))
    if params.get("stream", "All") != "All":
        message = f'Unsupported value: "{params["stream"]}": supported values: "All"'
        causes.append(Cause("FieldValueNotSupported", message, "stream"))
    _refuse(causes, pod)
    if seconds is not None:
        moment = _ago(now, seconds)
    return LogOptions(
        container=params.get("container", ""),
        follow=truth(params, "follow"),
        previous=truth(params, "previous"),
        timestamps=truth(params, "timestamps"),
        tail=tail,
        limit=limit,
        since=moment,
    )


def _moment(params: Params) -> datetime | None:
    text = params.get("sinceTime")
    if not text:
        return None
    try:
        moment = times.parse(text)
    except ValueError:
        raise BadRequest(f'sinceTime: "{text}" is not a time; write it like 2026-01-31T12:00:00Z') from None
    return moment


def _ago(now: datetime, seconds: int) -> datetime | None:
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        return None  # before the first possible date: everything


def _wrong(field: str, value: int, why: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {value}: {why}", field)


def _refuse(causes: list[Cause], pod: str) -> None:
    if not causes:
        return
    message = ", ".join(f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes)
    message = f"[{message}]" if len(causes) > 1 else message
    raise Invalid(
        f'PodLogOptions "{pod}" is invalid: {message}',
        causes=tuple(causes),
        details={"name": pod, "kind": "PodLogOptions"},
    )


def ports(raw: bytes, most: int) -> tuple[int, ...]:
    """The ports of a port-forward over WebSocket channels, in the order of the channels."""
    found = []
    for text in every(raw, "ports"):
        for word in text.split(","):
            if not (word.isascii() and word.isdigit()) or not 0 < int(word[:6]) < 65536:
                raise BadRequest(f'port "{word}" must be a number between 1 and 65535')
            found.append(int(word))
    if not found:
        raise BadRequest('query parameter "ports" is required: name the ports to forward')
    if len(found) > most:
        raise BadRequest(f"at most {most} ports can be forwarded at once, {len(found)} were named")
    return tuple(found)
