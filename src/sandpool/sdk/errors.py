"""The errors of the SDK. Every message names the object and says what to do next.

Advice is about arguments, written as `timeout=`, `Config(router=...)` or `Sandbox.attach(...)`: cli/error_messages.py turns these into flags and commands.

SandpoolError                          kube/errors.py: ApiError (what an API server said) and Unreachable (no answer) are there
├── Unreachable
│   ├── TimedOut                       no answer within the time allowed; also TimeoutError
│   └── Dropped                        the connection ended before the first byte of an answer
└── SandboxError
    ├── NotConfigured                  no cluster, or no router, is known; also ConfigError
    ├── ClaimError(claim)
    │   ├── PoolNotFound               ├── ClaimFailed(reason): it will never become ready
    │   ├── ClaimTimeout               it is not ready yet; also TimeoutError
    │   └── ClaimDeleted               somebody deleted it while you waited
    ├── SandboxNotFound                there is no sandbox of this name
    ├── SandboxGone                    it existed and has ended
    │   ├── SandboxReplaced(sandbox)   it was deleted; the claim has another one, which the handle uses from now on
    │   └── SandboxEvicted(reason)     the node evicted it, for example because its disk was full
    ├── NotReady                       it cannot be reached yet
    │   └── Suspended                  resume it first
    ├── Released                       this handle was released or closed
    ├── Denied                         the server does not accept the credential, or does not allow this
    ├── RouterError(status, code)      another refusal of the router or of the daemon in the sandbox
    ├── TooLarge(limit)                more data than may be held in memory
    ├── CommandError
    │   ├── CommandFailed(exit_code)   with its output: stdout, stderr
    │   │   ├── CommandNotFound        the sandbox has no such program; also FileNotFoundError
    │   │   └── OutOfMemory            it was killed at the sandbox's memory limit
    │   ├── CommandTimeout             with its output so far; also TimeoutError
    │   ├── CommandLost                the connection was lost, and the command ended with it
    │   │   └── SandboxRestarted(reason)   because the sandbox, or its pod, was restarted; files raise it, too
    │   └── ProcessNotFound
    │       └── ProcessLost(reason)    it ended when the sandbox was restarted; also SandboxRestarted
    └── FileError(path)
        ├── FileNotFound               also FileNotFoundError
        ├── FileExists                 the path exists, or a directory is not empty; also FileExistsError
        ├── FileDenied                 also PermissionError
        ├── FileTooLarge(limit)        also TooLarge
        ├── PastTheEnd                 the offset is beyond the end of the file
        └── NoSpace                    the sandbox's disk is full, or the file is too large
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandpool.base.errors import SandpoolError
from sandpool.kube.errors import ConfigError, Unreachable

if TYPE_CHECKING:
    from sandpool.sdk.values import Captured


class TimedOut(Unreachable, TimeoutError):
    """No answer came within the time allowed: the request may or may not have been processed."""


class Dropped(Unreachable):
    """The connection ended before the first byte of an answer: the request may or may not have been processed."""


class SandboxError(SandpoolError):
    """Root of errors about sandboxes, claims, commands and files."""


class NotConfigured(SandboxError, ConfigError):
    """No cluster, or no router, is known; the message says where the SDK looked."""


class ClaimError(SandboxError):
    """A claim that did not get a sandbox. `claim` is NAMESPACE/NAME."""

    def __init__(self, message: str, claim: str = "") -> None:
        super().__init__(message)
        self.claim = claim


class PoolNotFound(ClaimError):
    """There is no warm pool of this name in the namespace."""


class ClaimFailed(ClaimError):
    """The claim will never become ready. `reason` is that of its condition."""

    def __init__(self, message: str, claim: str = "", reason: str = "") -> None:
        super().__init__(message, claim)
        self.reason = reason


class ClaimTimeout(ClaimError, TimeoutError):
    """The claim was not ready within its timeout; the message says what it waits for."""


class ClaimDeleted(ClaimError):
    """The claim was deleted while you waited for it."""


class SandboxNotFound(SandboxError):
    """There is no sandbox, or no claim, of this name."""


class SandboxGone(SandboxError):
    """The sandbox has ended, or another one has its name now."""


class SandboxReplaced(SandboxGone):
    """Somebody deleted the sandbox, and the claim has another one now, `sandbox`. The files and processes of the old one are gone.
    Raised once; from then on the handle uses the new one."""

    def __init__(self, message: str, sandbox: str = "") -> None:
        super().__init__(message)
        self.sandbox = sandbox


class SandboxEvicted(SandboxGone):
    """The node evicted the sandbox, for example because its disk was full. `reason` is that of its pod."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class NotReady(SandboxError):
    """The sandbox exists but is not ready yet."""


class Suspended(NotReady):
    """The sandbox is suspended: resume it first."""


class Released(SandboxError):
    """This handle was released or closed; claim or attach again."""


class Denied(SandboxError):
    """The server does not accept the credential, or does not allow this."""


class RouterError(SandboxError):
    """A refusal of the router or of the daemon in the sandbox that has no class of its own."""

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class TooLarge(SandboxError):
    """More data than may be held in memory, or than you allowed. `limit` is that number of bytes; the message says what to call instead."""

    def __init__(self, message: str, limit: int = 0) -> None:
        super().__init__(message)
        self.limit = limit


class CommandError(SandboxError):
    """Root of errors about commands and processes."""


class WithOutput:
    """The output of a command before the error, with the properties of a Result."""

    _out: Captured | None = None
    _err: Captured | None = None

    @property
    def stdout(self) -> str:
        """As text, as `Result.stdout` gives it."""
        return self._out.text if self._out is not None else ""

    @property
    def stderr(self) -> str:
        """As text, as `Result.stderr` gives it."""
        return self._err.text if self._err is not None else ""

    @property
    def stdout_bytes(self) -> bytes:
        return self._out.data if self._out is not None else b""

    @property
    def stderr_bytes(self) -> bytes:
        return self._err.data if self._err is not None else b""


class CommandFailed(WithOutput, CommandError):
    """A command exited non-zero (128 and more: by a signal). `stdout` and `stderr` are those of a Result."""

    def __init__(self, message: str, exit_code: int, out: Captured | None = None, err: Captured | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self._out = out
        self._err = err


class OutOfMemory(CommandFailed):
    """The kernel killed the command because the sandbox ran out of memory: use less, or claim from a pool that allows more."""


class CommandNotFound(CommandFailed, FileNotFoundError):
    """The sandbox has no such program, or not the interpreter in its first line. A list raises it at once; for text the shell exits
    with 127, which raises it if `check` is set."""

    def __init__(
        self, message: str, exit_code: int = 127, out: Captured | None = None, err: Captured | None = None
    ) -> None:
        CommandFailed.__init__(self, message, exit_code, out, err)


class CommandTimeout(WithOutput, CommandError, TimeoutError):
    """A command took longer than its timeout. `run` has killed it with everything it started; a process keeps running. `stdout` and
    `stderr` are the output until then."""

    def __init__(self, message: str, out: Captured | None = None, err: Captured | None = None) -> None:
        super().__init__(message)
        self._out = out
        self._err = err


class CommandLost(CommandError, Unreachable):
    """The connection was lost while a command ran, and the command was killed."""


class SandboxRestarted(CommandLost):
    """The sandbox was restarted while a command ran, or since the last call: its processes have ended, and only files on volumes are sure
    to exist. A call that notices this before it starts does nothing else; the next call uses the restarted sandbox. `reason` is one word:
    OOMKilled, Error, PodDeleted; DaemonEnded if only its daemon ended; empty if the pod may not be read."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class ProcessNotFound(CommandError):
    """The sandbox has no process with this id, or has dropped its record."""


class ProcessLost(SandboxRestarted, ProcessNotFound):
    """A process that ended because the sandbox was restarted. It has no exit code."""


class FileError(SandboxError):
    """Root of errors about files and directories in the sandbox."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class FileNotFound(FileError, FileNotFoundError):
    """There is no file or directory at this path."""


class FileExists(FileError, FileExistsError):
    """The path already exists, or a directory is not empty."""


class FileDenied(FileError, PermissionError):
    """The path leads out of the sandbox's root, or its user may not touch it."""


class NoSpace(FileError):
    """The sandbox's disk is full, or the file is too large."""


class PastTheEnd(FileError):
    """The requested part of a file begins beyond its end. `read` returns nothing instead."""


class FileTooLarge(FileError, TooLarge):
    """A file, or a downloaded directory, has more bytes than you allowed: raise `max_bytes`, or use `open`, `read_into` or
    `download`, which hold nothing in memory."""

    def __init__(self, message: str, path: str = "", limit: int = 0) -> None:
        FileError.__init__(self, message, path)
        self.limit = limit
