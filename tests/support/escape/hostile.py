"""The frame of a hostile program. Everything named in_* runs inside a sandbox, with the standard library only.

An attempt is a function that is given its targets and answers with evidence that it got out; an OSError, or nothing, means
that it was held. Each runs in a process of its own. The program reads names from stdin and answers each with a line of JSON,
so that whoever drives it can look at the machine after every single attempt.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 20
REFUSED = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT}


class Absent(Exception):
    """This machine has nothing of the kind, for anybody."""


@dataclass(frozen=True)
class Attempt:
    """`privileged`: without isolation only root succeeds. `capability`: and only with this one. `own_kernel`: aimed at the
    machine's kernel; one that a sandbox has for itself may say yes, and only what happens outside counts. `only_own_kernel`: it
    asks such a kernel for something of the machine's, which it must not have. `elsewhere`: why it is not run without isolation,
    and what proves it instead."""

    name: str
    body: Callable[..., str | None]
    privileged: bool = False
    capability: int | None = None
    own_kernel: bool = False
    elsewhere: str = ""
    only_own_kernel: bool = False


ATTEMPTS: dict[str, Attempt] = {}
Body = Callable[["Targets"], "str | None"]


def attempt(
    *, privileged: bool = False, capability: int | None = None, own_kernel: bool = False, elsewhere: str = "",
    only_own_kernel: bool = False,
) -> Callable[[Body], Body]:  # fmt: skip
    def register(body: Body) -> Body:
        add(Attempt(body.__name__, body, privileged, capability, own_kernel, elsewhere, only_own_kernel))
        return body

    return register


def add(one: Attempt) -> None:
    assert one.name not in ATTEMPTS, one.name
    ATTEMPTS[one.name] = one


@dataclass
class Targets:
    """What the test made. Tokens come reversed, so that having been told them is not having found them."""

    given: dict[str, Any]
    files: list[str] = field(default_factory=list)  # that were open when the program began

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    def found(self, data: bytes) -> bool:
        turned = data[::-1]
        return any(token.encode() in turned for token in self.given["tokens"])

    def steal(self, path: str) -> str | None:
        with open(path, "rb") as file:
            return f"read {path}" if self.found(file.read(1 << 20)) else None

    def steal_any(self, paths: Iterable[str]) -> str | None:
        return first(lambda path=path: self.steal(path) for path in paths)

    def pids(self) -> list[int]:
        """Inside: everybody. Without isolation: only what the test started."""
        scan: list[int] = self.given["scan"]
        return scan or [int(name) for name in os.listdir("/proc") if name.isdigit()]


def first(tries: Iterable[Callable[..., str | None]]) -> str | None:
    """The first evidence; what fails is passed over."""
    for each in tries:
        try:
            if evidence := each():
                return evidence
        except OSError:
            continue
    return None


def every(tries: dict[str, Callable[..., object]]) -> str | None:
    """The names of all that went through."""
    through = []
    for name, each in tries.items():
        try:
            each()
        except OSError:
            continue
        through.append(name)
    return ", ".join(through) or None


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_ARM = platform.machine() == "aarch64"


def syscall(numbers: int | tuple[int, int], *arguments: object) -> int:
    """By number: one for all machines, or (x86_64, arm64). Numbers are passed as long, bytes as pointers."""
    number = numbers if isinstance(numbers, int) else numbers[_ARM]
    if number < 0:
        raise Absent("this machine has no such call")
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *wide))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def answered(call: Callable[..., object]) -> str | None:
    """Evidence that the kernel was willing: it did it, or found fault with the arguments instead of with who asks."""
    try:
        return f"allowed: {call()}"
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise Absent("the kernel has no such call") from None
        return None if error.errno in REFUSED else f"allowed, but {error.strerror}"


def run_one(one: Attempt, targets: Targets) -> dict[str, str]:
    """In a process of its own, which is ended with all that it started."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setpgid(0, 0)
        signal.alarm(PATIENCE)
        os.write(writer, json.dumps(_tried(one, targets)).encode())
        os._exit(0)
    os.close(writer)
    said = b""
    while part := os.read(reader, 65536):
        said += part
    os.close(reader)
    _, status = os.waitpid(child, 0)
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError:
        pass
    return json.loads(said) if said else {"escaped": "", "why": f"ended by {os.waitstatus_to_exitcode(status)}"}


def _tried(one: Attempt, targets: Targets) -> dict[str, str]:
    try:
        return {"escaped": one.body(targets) or "", "why": "nothing was found"}
    except Absent as absent:
        return {"escaped": "", "why": str(absent), "absent": "yes"}
    except OSError as error:
        return {"escaped": "", "why": errno.errorcode.get(error.errno or 0, str(error))}
    except Exception:
        return {"escaped": "", "why": traceback.format_exc(), "broken": "yes"}


def main(given: dict[str, Any], files: list[str]) -> None:
    targets = Targets(given, files)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run_one(ATTEMPTS[line.strip()], targets)), flush=True)
