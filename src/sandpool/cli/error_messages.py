"""Messages and exit codes for errors that no command handles itself: what happened, and what to do next."""

from __future__ import annotations

import re

from sandpool.cli.exits import FAILED, NOT_FOUND, TIMED_OUT
from sandpool.kube import errors as kube

_LOOK = "`sandpool status` shows whether the cluster on this machine is running; --kubeconfig and --context choose another one"
_NEXT: tuple[tuple[type[Exception], str], ...] = (
    (
        kube.Unauthorized,
        "the server does not accept these credentials: renew them, or choose others with --kubeconfig or --context",
    ),
    (kube.Forbidden, "ask for that permission, or choose other credentials with --kubeconfig or --context"),
    (kube.NotFound, "check the name and the namespace (-n)"),
    (kube.AlreadyExists, "choose another name"),
    (kube.Conflict, "somebody changed it meanwhile: try again"),
    (kube.Invalid, "fix the named field, and try again"),
    (kube.BadRequest, "fix the named field, and try again"),
    (kube.TooManyRequests, "the server is busy: try again in a moment"),
    (kube.Unavailable, "try again in a moment"),
    (kube.ServerTimeout, "try again in a moment"),
    (kube.InternalError, "try again; if it persists, check the server's log"),
    (kube.Untrusted, "check the certificate authority in the kubeconfig"),
    (TimeoutError, "try again, or wait longer with --timeout"),
    (kube.Unreachable, _LOOK),
)


_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\(or Config\(kubeconfig=\.\.\.\)\)"), "or --kubeconfig"),
    (re.compile(r" \(or Config\([a-z_]+=(?:\.\.\.|True)\)\)"), ""),  # if there is no flag, the variable remains
    (re.compile(r"\bwith timeout=(?!\w)"), "with --timeout"),
    (re.compile(r"\bSandbox\.attach\('([^']*)'\)"), r"`sandpool exec \1`"),
)


def in_flags(message: str) -> str:
    """A message of the SDK for the command line: with flags and commands instead of arguments and methods."""
    for pattern, instead in _WORDS:
        message = pattern.sub(instead, message)
    return message


def describe_error(error: Exception) -> str:
    """One line that ends with the next step; messages of the SDK have one already."""
    from sandpool.sdk.errors import SandboxError

    message = in_flags(" ".join([str(error), *getattr(error, "__notes__", ())]).strip())
    if isinstance(error, SandboxError | kube.ConfigError):
        return message
    step = next((step for kind, step in _NEXT if isinstance(error, kind)), "")
    if isinstance(error, kube.Forbidden) and kube.over_quota(error):
        step = "delete what is no longer needed, or ask the administrator of the cluster for a higher limit"
    if not step or step in message:
        return message
    end = "" if message.endswith("?") else "."
    return f"{message.rstrip('.')}{end} {step[:1].upper()}{step[1:]}"


def code_of(error: Exception) -> int:
    from sandpool.sdk import errors

    absent = (
        kube.NotFound,
        errors.PoolNotFound,
        errors.SandboxNotFound,
        errors.SandboxGone,
        errors.FileNotFound,
        errors.NotConfigured,
    )
    if isinstance(error, absent):
        return NOT_FOUND
    return TIMED_OUT if isinstance(error, TimeoutError) else FAILED
