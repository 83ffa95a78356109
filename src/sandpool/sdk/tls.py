"""TLS without I/O: ciphertext on one side, plain bytes on the other. Thread-safe."""

from __future__ import annotations

import ssl
import threading

from sandpool.kube.errors import Refused, Unreachable, Untrusted

HUNG_UP = (
    "the other side hung up during the TLS handshake: it may be starting or stopping, have too many connections or open files, or be "
    "short of memory; see its log. Try again, and check that this port speaks TLS"
)


class TlsState:
    """One connection. The user sends what `outgoing` returns to the other side, in order, and feeds what comes back."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._state = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._name = server_name
        # One call at a time: the library releases the GIL inside them.
        self._lock = threading.Lock()

    def feed(self, data: bytes) -> None:
        """Ciphertext from the other side; empty at its end."""
        with self._lock:
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def outgoing(self) -> bytes:
        with self._lock:
            return self._outgoing.read()

    def shake_hands(self) -> bool:
        """Whether the handshake is complete; if not, feed more. Raises Untrusted, or Refused if the other side hung up."""
        with self._lock:
            try:
                self._state.do_handshake()
            except ssl.SSLWantReadError:
                return False
            except ssl.SSLCertVerificationError as error:
                raise Untrusted(
                    f"{self._name}: its certificate is not trusted ({error.verify_message}); check the CA and the address"
                ) from None
            except ssl.SSLEOFError:
                raise Refused(f"{self._name}: {HUNG_UP}") from None
            except ssl.SSLError as error:
                raise Untrusted(
                    f"{self._name}: the TLS handshake failed ({_reason(error)}); check the address and certificates"
                ) from None
            return True

    def read(self, limit: int) -> bytes | None:
        """Plain bytes; empty at the end; None if more must be fed first."""
        with self._lock:
            try:
                return self._state.read(limit)
            except ssl.SSLWantReadError:
                return None
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""
            except ssl.SSLError as error:
                # With TLS 1.3 a server checks the client's certificate after the client has completed the handshake.
                kind = Untrusted if "CERTIFICATE" in (error.reason or "") else Unreachable
                raise kind(f"{self._name}: TLS ended with an error ({_reason(error)})") from None

    def write(self, data: bytes | memoryview) -> None:
        with self._lock:
            view = memoryview(data)
            try:
                while view:
                    view = view[self._state.write(view) :]
            except ssl.SSLError as error:
                raise Unreachable(f"{self._name}: TLS ended with an error ({_reason(error)})") from None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or type(error).__name__).replace("_", " ").lower()
