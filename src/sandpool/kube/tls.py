"""TLS contexts: which authorities to trust, which certificate to present, and which ciphers are cheap enough to offer to untrusted peers."""

from __future__ import annotations

import ssl

from sandpool.kube.config import Cluster
from sandpool.kube.credentials import Certificate
from sandpool.kube.errors import ConfigError


def tls_context(cluster: Cluster, certificate: Certificate | None) -> ssl.SSLContext:
    # Not create_default_context: from Python 3.13 it refuses the authorities that many clusters were made with.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cluster.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif cluster.ca:
        try:
            context.load_verify_locations(cadata=cluster.ca)
        except (ssl.SSLError, ValueError):
            raise ConfigError(f"{cluster.server}: the certificate authority is not a PEM certificate") from None
    else:
        context.load_default_certs()
    if certificate is not None:
        _show(context, certificate, cluster.server)
    return context


def agree_cheaply(context: ssl.SSLContext) -> ssl.SSLContext:
    """For servers, and for clients of untrusted servers. The peer may choose the key agreement, and with 8,192-bit parameters one handshake takes
    a quarter of a second, in which no other request is served. So only one curve is offered, which every client supports, and
    renegotiation is off."""
    context.set_ecdh_curve("prime256v1")
    context.set_ciphers("ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM")
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _show(context: ssl.SSLContext, certificate: Certificate, server: str) -> None:
    import tempfile

    # The library takes certificates from files only. This one is ours alone (mode 0600) and gone at once.
    with tempfile.NamedTemporaryFile("w", prefix="sandpool-", suffix=".pem") as file:
        file.write(certificate.chain.reveal().rstrip("\n") + "\n" + certificate.key.reveal())
        file.flush()
        try:
            context.load_cert_chain(file.name, password=_no_password)
        except (ssl.SSLError, ValueError):
            raise ConfigError(
                f"{server}: the client certificate and its key do not fit together or are not PEM; "
                "check client-certificate and client-key (a key with a passphrase cannot be used)"
            ) from None


def _no_password() -> str:
    """Without this the library would ask on the terminal."""
    return ""
