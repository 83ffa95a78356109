"""Warm, isolated sandboxes for AI agents.

`from sandpool import Sandbox` is what most programs need; `AsyncSandbox` is the same with await. Names are loaded when they are
first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandpool.version import __version__

if TYPE_CHECKING:
    from sandpool.base.errors import SandpoolError
    from sandpool.kube.errors import (
        AlreadyExists,
        ApiError,
        BadRequest,
        ConfigError,
        Conflict,
        Forbidden,
        Gone,
        InsufficientStorage,
        InternalError,
        Invalid,
        MethodNotAllowed,
        NotAcceptable,
        NotFound,
        Refused,
        RequestTooLarge,
        ServerTimeout,
        TooManyRequests,
        Unauthorized,
        Unavailable,
        Unreachable,
        Unreadable,
        UnsupportedMedia,
        Untrusted,
    )
    from sandpool.sdk._async.connection import AsyncConnection
    from sandpool.sdk._async.file_watch import AsyncWatch
    from sandpool.sdk._async.files import AsyncFiles
    from sandpool.sdk._async.process import AsyncProcess
    from sandpool.sdk._async.sandbox import AsyncSandbox
    from sandpool.sdk._async.stream import AsyncStream
    from sandpool.sdk._async.terminal import AsyncTerminal
    from sandpool.sdk._sync.connection import Connection
    from sandpool.sdk._sync.file_watch import Watch
    from sandpool.sdk._sync.files import Files
    from sandpool.sdk._sync.process import Process
    from sandpool.sdk._sync.sandbox import Sandbox
    from sandpool.sdk._sync.stream import Stream
    from sandpool.sdk._sync.terminal import Terminal
    from sandpool.sdk.claims import SandboxInfo, State
    from sandpool.sdk.config import Config
    from sandpool.sdk.errors import (
        ClaimDeleted,
        ClaimError,
        ClaimFailed,
        ClaimTimeout,
        CommandError,
        CommandFailed,
        CommandLost,
        CommandNotFound,
        CommandTimeout,
        Denied,
        Dropped,
        FileDenied,
        FileError,
        FileExists,
        FileNotFound,
        FileTooLarge,
        NoSpace,
        NotConfigured,
        NotReady,
        OutOfMemory,
        PastTheEnd,
        PoolNotFound,
        ProcessLost,
        ProcessNotFound,
        Released,
        RouterError,
        SandboxError,
        SandboxEvicted,
        SandboxGone,
        SandboxNotFound,
        SandboxReplaced,
        SandboxRestarted,
        Suspended,
        TimedOut,
        TooLarge,
    )
    from sandpool.sdk.values import Change, Exit, FileInfo, Output, ProcessInfo, Result, Transfer

__all__ = [
    "AlreadyExists",
    "ApiError",
    "AsyncConnection",
    "AsyncFiles",
    "AsyncProcess",
    "AsyncSandbox",
    "AsyncStream",
    "AsyncTerminal",
    "AsyncWatch",
    "BadRequest",
    "Change",
    "ClaimDeleted",
    "ClaimError",
    "ClaimFailed",
    "ClaimTimeout",
    "CommandError",
    "CommandFailed",
    "CommandLost",
    "CommandNotFound",
    "CommandTimeout",
    "Config",
    "ConfigError",
    "Conflict",
    "Connection",
    "Denied",
    "Dropped",
    "Exit",
    "FileDenied",
    "FileError",
    "FileExists",
    "FileInfo",
    "FileNotFound",
    "FileTooLarge",
    "Files",
    "Forbidden",
    "Gone",
    "InsufficientStorage",
    "InternalError",
    "Invalid",
    "MethodNotAllowed",
    "NoSpace",
    "NotAcceptable",
    "NotConfigured",
    "NotFound",
    "NotReady",
    "OutOfMemory",
    "Output",
    "PastTheEnd",
    "PoolNotFound",
    "Process",
    "ProcessInfo",
    "ProcessLost",
    "ProcessNotFound",
    "Refused",
    "Released",
    "RequestTooLarge",
    "Result",
    "RouterError",
    "Sandbox",
    "SandboxError",
    "SandboxEvicted",
    "SandboxGone",
    "SandboxInfo",
    "SandboxNotFound",
    "SandboxReplaced",
    "SandboxRestarted",
    "SandpoolError",
    "ServerTimeout",
    "State",
    "Stream",
    "Suspended",
    "Terminal",
    "TimedOut",
    "TooLarge",
    "TooManyRequests",
    "Transfer",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "Unreadable",
    "UnsupportedMedia",
    "Untrusted",
    "Watch",
    "__version__",
]

_PLACES = {
    "sandpool.kube.errors": (
        "AlreadyExists",
        "ApiError",
        "BadRequest",
        "ConfigError",
        "Conflict",
        "Forbidden",
        "Gone",
        "InsufficientStorage",
        "InternalError",
        "Invalid",
        "MethodNotAllowed",
        "NotAcceptable",
        "NotFound",
        "Refused",
        "RequestTooLarge",
        "SandpoolError",
        "ServerTimeout",
        "TooManyRequests",
        "Unauthorized",
        "Unavailable",
        "Unreachable",
        "Unreadable",
        "UnsupportedMedia",
        "Untrusted",
    ),
    "sandpool.sdk._async.connection": ("AsyncConnection",),
    "sandpool.sdk._async.file_watch": ("AsyncWatch",),
    "sandpool.sdk._async.files": ("AsyncFiles",),
    "sandpool.sdk._async.process": ("AsyncProcess",),
    "sandpool.sdk._async.sandbox": ("AsyncSandbox",),
    "sandpool.sdk._async.stream": ("AsyncStream",),
    "sandpool.sdk._async.terminal": ("AsyncTerminal",),
    "sandpool.sdk._sync.connection": ("Connection",),
    "sandpool.sdk._sync.file_watch": ("Watch",),
    "sandpool.sdk._sync.files": ("Files",),
    "sandpool.sdk._sync.process": ("Process",),
    "sandpool.sdk._sync.sandbox": ("Sandbox",),
    "sandpool.sdk._sync.stream": ("Stream",),
    "sandpool.sdk._sync.terminal": ("Terminal",),
    "sandpool.sdk.claims": (
        "SandboxInfo",
        "State",
    ),
    "sandpool.sdk.config": ("Config",),
    "sandpool.sdk.errors": (
        "ClaimDeleted",
        "ClaimError",
        "ClaimFailed",
        "ClaimTimeout",
        "CommandError",
        "CommandFailed",
        "CommandLost",
        "CommandNotFound",
        "CommandTimeout",
        "Denied",
        "Dropped",
        "FileDenied",
        "FileError",
        "FileExists",
        "FileNotFound",
        "FileTooLarge",
        "NoSpace",
        "NotConfigured",
        "NotReady",
        "OutOfMemory",
        "PastTheEnd",
        "PoolNotFound",
        "ProcessLost",
        "ProcessNotFound",
        "Released",
        "RouterError",
        "SandboxError",
        "SandboxEvicted",
        "SandboxGone",
        "SandboxNotFound",
        "SandboxReplaced",
        "SandboxRestarted",
        "Suspended",
        "TimedOut",
        "TooLarge",
    ),
    "sandpool.sdk.values": (
        "Change",
        "Exit",
        "FileInfo",
        "Output",
        "ProcessInfo",
        "Result",
        "Transfer",
    ),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'sandpool' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_PLACE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
