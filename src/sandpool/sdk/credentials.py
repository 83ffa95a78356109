"""The current credential: fixed, from files that rotate, or from an exec plugin. Thread-safe.

kube/credentials.py does the same for an event loop; here `current` and `renew` may block. `ready` never does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandpool.kube.config import Exec, User
from sandpool.kube.credentials import FILE_AGE, LEEWAY, Certificate, Credential, bearer, read_credential
from sandpool.kube.errors import ConfigError

if TYPE_CHECKING:
    from sandpool.kube.plugin import Issued


class Credentials:
    def __init__(self, user: User, env: Mapping[str, str]) -> None:
        self._user = user
        self._env = env
        self._files = bool(
            user.token_file or (user.certificate and user.certificate.file) or (user.key and user.key.file)
        )
        self._held: Credential | None = None
        self._read_at = 0.0
        self._expires: datetime | None = None
        self._lock = threading.Lock()

    def ready(self) -> Credential | None:
        """The current credential, if getting it does not block."""
        held = self._held
        return held if held is not None and not self._old() else None

    def current(self) -> Credential:
        with self._lock:
            if self._held is None:
                self._held = self._obtain()
            elif self._old():
                self._refresh()
            return self._held

    def renew(self, used: Credential) -> bool:
        """A server refused `used`: whether `current` is another one now. Of several callers, one renews."""
        with self._lock:
            if self._held is used:
                self._refresh()
                return self._held is not used and (self._user.exec is not None or self._held != used)
            return True

    def _refresh(self) -> None:
        if self._user.exec is None:
            try:
                self._held = self._obtain()
            except ConfigError:  # rotation in progress: keep the old one and let the server decide
                self._read_at = time.monotonic()
        else:
            self._held = self._obtain()

    def _old(self) -> bool:
        if self._user.exec is not None:
            return self._expires is not None and datetime.now(UTC) >= self._expires - LEEWAY
        return self._files and time.monotonic() - self._read_at >= FILE_AGE

    def _obtain(self) -> Credential:
        self._read_at = time.monotonic()
        base = read_credential(self._user)
        if self._user.exec is None:
            return base
        issued = ask_plugin(self._user.exec, self._env)
        self._expires = issued.expires
        headers = (*base.headers, bearer(issued.token)) if issued.token else base.headers
        certificate = base.certificate
        if issued.certificate and issued.key:
            certificate = Certificate(issued.certificate, issued.key)
        return Credential(headers, certificate)


def ask_plugin(spec: Exec, env: Mapping[str, str]) -> Issued:
    """Runs the plugin once and waits for it."""
    import subprocess  # here: most users have no plugin

    from sandpool.kube.plugin import PATIENCE, exec_info, find_plugin, read_answer, talks

    interactive = talks(spec)
    executable = find_plugin(spec, env)
    given = {**env, **dict(spec.env), "KUBERNETES_EXEC_INFO": exec_info(spec, interactive)}
    try:
        done = subprocess.run(  # noqa: S603 - the kubeconfig of the user names it
            [executable, *spec.args],
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=given,
            timeout=None if interactive else PATIENCE,
            check=False,
        )
    except OSError as error:
        raise ConfigError(f"exec plugin {spec.command}: cannot be run ({error.strerror}); check the file") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"exec plugin {spec.command}: did not answer within {PATIENCE:g} s; run it by hand") from None
    if done.returncode:
        raise ConfigError(f"exec plugin {spec.command}: failed with exit code {done.returncode}; run it by hand")
    return read_answer(spec, done.stdout)
