"""How a command ended, as its client is told. Pure.

From version 4 on it is a Status in JSON, before that text that only comes if something went wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sandpool.kube.errors import InternalError

SUCCESS: Final[Mapping[str, Any]] = {"metadata": {}, "status": "Success"}


def of_exit(code: int) -> Mapping[str, Any]:
    if code == 0:
        return SUCCESS
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def of_failure(why: str) -> Mapping[str, Any]:
    return InternalError(f"Internal error occurred: {why}", details={"causes": [{"message": why}]}).body()


def encoded(status: Mapping[str, Any], version: int) -> bytes:
    if version >= 4:
        return msgspec.json.encode(status)
    return b"" if status["status"] == "Success" else str(status["message"]).encode()
