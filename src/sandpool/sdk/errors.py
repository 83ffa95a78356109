"""What the SDK can raise. Every message names the object and says what to do next.

Advice is about arguments, written as `timeout=`, `Config(router=...)` or `Sandbox.attach(...)`: cli/failures.py turns these into flags and commands.

SandpoolError                          kube/errors.py: ApiError (what an API server said) and Unreachable (no answer) are there
├── Unreachable
│   ├── TimedOut                       no answer within the time allowed; also TimeoutError
│   └── Dropped                        the connection ended before the first byte of an answer
└── SandboxError
    ├── NotConfigured                  no cluster, or no way into it, is known; also ConfigError
    ├── ClaimError(claim)
    │   ├── PoolNotFound               ├── ClaimFailed(reason): it will never become ready
    │   ├── ClaimTimeout               it is not ready yet; also TimeoutError
    │   └── ClaimDeleted               somebody deleted it while it was waited for
    ├── SandboxNotFound                there is none of this name
    ├── SandboxGone                    it was there and has ended
    │   ├── SandboxReplaced(sandbox)   it was deleted; the claim has another one, to which the handle leads from now on
    │   └── SandboxEvicted(reason)     the node ended it, for want of disk space, for example
    ├── NotReady                       it cannot be reached yet
    │   └── Suspended                  resume it first
    ├── Released                       this handle was released or closed
    ├── Denied                         the credential is not known, or may not do this
    ├── RouterError(status, code)      another refusal of the router or of the daemon in the sandbox
    ├── TooLarge(limit)                more came than is held in memory
    ├── CommandError
    │   ├── CommandFailed(exit_code)   with what it said: stdout, stderr
    │   │   ├── CommandNotFound        the sandbox has no such program; also FileNotFoundError
    │   │   └── OutOfMemory            the sandbox's limit of memory ended it
    │   ├── CommandTimeout             with what it had said; also TimeoutError
    │   ├── CommandLost                the connection was lost, and the command ended with it
    │   │   └── SandboxRestarted(reason)   because the sandbox, or its pod, ended and was started again; files raise it, too
    │   └── ProcessNotFound
    │       └── ProcessLost(reason)    it ended when the sandbox was started again; also SandboxRestarted
    └── FileError(path)
        ├── FileNotFound               also FileNotFoundError
        ├── FileExists                 something is there already, or a folder is not empty; also FileExistsError
        ├── FileDenied                 also PermissionError
        ├── FileTooLarge(limit)        also TooLarge
        ├── PastTheEnd                 a part of a file that begins behind its end
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
    """Root of what is wrong with a sandbox, a claim, a command or a file."""


class NotConfigured(SandboxError, ConfigError):
    """No cluster, or no way into it, is known; the message says what was looked for."""


class ClaimError(SandboxError):
    """A claim that did not become a sandbox. `claim` is NAMESPACE/NAME."""

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
    """The claim is not ready yet; the message says what it waits for."""


class ClaimDeleted(ClaimError):
    """Somebody deleted the claim while it was waited for."""


class SandboxNotFound(SandboxError):
    """There is no sandbox, or no claim, of this name."""


class SandboxGone(SandboxError):
    """The sandbox was there and has ended, or another one has its name now."""


class SandboxReplaced(SandboxGone):
    """Somebody deleted the sandbox, and the claim has got another one, `sandbox`. What was in the old one is gone: its files, its
    processes. Raised once; from then on the handle leads to the new one."""

    def __init__(self, message: str, sandbox: str = "") -> None:
        super().__init__(message)
        self.sandbox = sandbox


class SandboxEvicted(SandboxGone):
    """The node ended the sandbox, for want of disk space, for example. `reason` is that of its pod."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class NotReady(SandboxError):
    """The sandbox exists and cannot be reached yet."""


class Suspended(NotReady):
    """The sandbox is suspended: resume it first."""


class Released(SandboxError):
    """This handle was released or closed; claim or attach again."""


class Denied(SandboxError):
    """The credential is not known to the server, or may not do this."""


class RouterError(SandboxError):
    """A refusal of the router or of the daemon in the sandbox that has no class of its own."""

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class TooLarge(SandboxError):
    """More came than may be held in memory, or than was allowed. `limit` is how many bytes were; the message says what to call instead."""

    def __init__(self, message: str, limit: int = 0) -> None:
        super().__init__(message)
        self.limit = limit


class CommandError(SandboxError):
    """Something about a command or a process."""


class Said:
    """What a command said before an error about it: the same values as those of a Result."""

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


class CommandFailed(Said, CommandError):
    """A command exited with another code than 0 (128 and more: by a signal). `stdout` and `stderr` are what a Result has."""

    def __init__(self, message: str, exit_code: int, out: Captured | None = None, err: Captured | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self._out = out
        self._err = err


class OutOfMemory(CommandFailed):
    """The kernel ended the command because the sandbox had used up its memory: use less, or claim from a pool that allows more."""


class CommandNotFound(CommandFailed, FileNotFoundError):
    """The sandbox has no such program, or not the interpreter in its first line. A list raises it at once; of text the shell
    says so with exit code 127, which raises it where `check` is set."""

    def __init__(
        self, message: str, exit_code: int = 127, out: Captured | None = None, err: Captured | None = None
    ) -> None:
        CommandFailed.__init__(self, message, exit_code, out, err)


class CommandTimeout(Said, CommandError, TimeoutError):
    """A command took longer than it was allowed. `run` has ended it with all that it started; a process goes on. `stdout` and
    `stderr` are what it had said."""

    def __init__(self, message: str, out: Captured | None = None, err: Captured | None = None) -> None:
        super().__init__(message)
        self._out = out
        self._err = err


class CommandLost(CommandError, Unreachable):
    """The connection was lost while a command ran, and the command was ended with it."""


class SandboxRestarted(CommandLost):
    """The sandbox ended and was started again, while a command ran or since the last call: all that ran in it has ended, and of its
    files only those on volumes are sure to be there. A call that finds this out before it begins does nothing else; the next one is for the
    sandbox as it is now. `reason` says why in one word: OOMKilled, Error, PodDeleted; DaemonEnded if only its daemon ended; empty if the pod may not
    be read."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class ProcessNotFound(CommandError):
    """There is no process of this id in the sandbox, or it is not remembered any more."""


class ProcessLost(SandboxRestarted, ProcessNotFound):
    """A process that ended because the sandbox ended and was started again. How it would have ended is not known."""


class FileError(SandboxError):
    """Something about a file or folder in the sandbox."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class FileNotFound(FileError, FileNotFoundError):
    """Nothing is at this path."""


class FileExists(FileError, FileExistsError):
    """Something is at this path already, or a folder is not empty."""


class FileDenied(FileError, PermissionError):
    """The path leads out of the sandbox's root, or its user may not touch it."""


class NoSpace(FileError):
    """The sandbox's disk is full, or the file is too large."""


class PastTheEnd(FileError):
    """The part of a file that was asked for begins behind its end. `read` gives nothing instead."""


class FileTooLarge(FileError, TooLarge):
    """A file, or a folder that is downloaded, has more bytes than were allowed: `max_bytes` allows more, and `open`, `read_into` and
    `download` hold nothing in memory."""

    def __init__(self, message: str, path: str = "", limit: int = 0) -> None:
        FileError.__init__(self, message, path)
        self.limit = limit
