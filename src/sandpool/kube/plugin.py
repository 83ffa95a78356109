"""Credential plugins: run an executable and read what it prints (client.authentication.k8s.io/v1 and v1beta1).

What a plugin prints on stderr goes to ours, because it may be a question to the user. What it prints on stdout is a
secret: no message quotes it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sandpool.base.secret import Secret
from sandpool.kube.config import Exec, InteractiveMode
from sandpool.kube.errors import ConfigError

PATIENCE = 60.0
"""Seconds that a plugin without a terminal may take. One that talks to the user may take as long as the user does."""


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _Answer(msgspec.Struct, rename="camel"):
    kind: str
    api_version: str
    status: _Status | None = None


@dataclass(frozen=True, slots=True)
class Issued:
    """What a plugin handed out: a token, or a certificate with its key, or both."""

    token: Secret | None
    certificate: Secret | None
    key: Secret | None
    expires: datetime | None


async def run_plugin(spec: Exec, env: Mapping[str, str], patience: float = PATIENCE) -> Issued:
    """Ask the plugin once. `env` is the environment that it inherits."""
    interactive = talks(spec)
    executable = find_plugin(spec, env)
    given = {**env, **dict(spec.env), "KUBERNETES_EXEC_INFO": exec_info(spec, interactive)}
    output = await _output(spec, executable, given, interactive, patience)
    return read_answer(spec, output)


def find_plugin(spec: Exec, env: Mapping[str, str]) -> str:
    import shutil  # here: most users have no plugin

    executable = shutil.which(spec.command, path=env.get("PATH", os.defpath))
    if executable is None:
        hint = f" ({spec.install_hint.strip()})" if spec.install_hint else ""
        raise ConfigError(f"exec plugin {spec.command}: no such executable; install it or correct exec.command{hint}")
    return executable


def exec_info(spec: Exec, interactive: bool) -> str:
    """The value of KUBERNETES_EXEC_INFO, which the plugin reads."""
    about: dict[str, Any] = {"interactive": interactive}
    if spec.cluster is not None:
        about["cluster"] = spec.cluster
    info = {"kind": "ExecCredential", "apiVersion": spec.api_version, "spec": about}
    return msgspec.json.encode(info).decode()


def read_answer(spec: Exec, output: bytes) -> Issued:
    try:
        answer = msgspec.json.decode(output, type=_Answer)
    except msgspec.ValidationError as error:
        raise ConfigError(f"exec plugin {spec.command}: not an ExecCredential: {error}; upgrade it") from None
    except msgspec.DecodeError:
        raise ConfigError(f"exec plugin {spec.command}: printed something that is not JSON; run it by hand") from None
    if answer.kind != "ExecCredential" or answer.api_version != spec.api_version:
        raise ConfigError(
            f"exec plugin {spec.command}: answered {answer.api_version} {answer.kind} instead of {spec.api_version} "
            "ExecCredential; correct exec.apiVersion"
        )
    status = answer.status or _Status()
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ConfigError(f"exec plugin {spec.command}: gave a certificate without a key or a key without one")
    if not status.token and not status.client_certificate_data:
        raise ConfigError(f"exec plugin {spec.command}: gave neither status.token nor status.clientCertificateData")
    return Issued(
        token=Secret(status.token) if status.token else None,
        certificate=Secret(status.client_certificate_data) if status.client_certificate_data else None,
        key=Secret(status.client_key_data) if status.client_key_data else None,
        expires=status.expiration_timestamp,
    )


def talks(spec: Exec) -> bool:
    """Does the plugin get our standard input?"""
    if spec.interactive is InteractiveMode.NEVER:
        return False
    terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    if spec.interactive is InteractiveMode.ALWAYS and not terminal:
        raise ConfigError(
            f"exec plugin {spec.command}: needs a terminal (exec.interactiveMode is Always) and there is none; log in "
            "from a terminal first, or use another way to authenticate"
        )
    return terminal


async def _output(spec: Exec, executable: str, env: Mapping[str, str], interactive: bool, patience: float) -> bytes:
    import asyncio  # here: the synchronous SDK imports this module and needs no event loop

    try:
        process = await asyncio.create_subprocess_exec(
            executable,
            *spec.args,
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=env,
        )
    except OSError as error:
        raise ConfigError(f"exec plugin {spec.command}: cannot be run ({error.strerror}); check the file") from None
    try:
        async with asyncio.timeout(None if interactive else patience):
            output, _ = await process.communicate()
    except TimeoutError:
        raise ConfigError(f"exec plugin {spec.command}: gave no answer within {patience:g} s; run it by hand") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ConfigError(f"exec plugin {spec.command}: failed with exit code {process.returncode}; run it by hand")
    return output
