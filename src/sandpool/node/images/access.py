"""Who may use an image or a layer that is already here. Pure.

An image that was pulled with a login is given only to pods that prove their access: with a login for which the registry has already given
this very image, or by asking the registry again. A layer that came with a login is reused only by a pull of the same repository in
which the registry confirms the same blob; any other pull has to deliver it, even if an unpacked copy is here. What was pulled without a
login, and what the operator brought here, is for everybody.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection

import msgspec

from sandpool.node.images.port import Credential
from sandpool.node.images.records import IMPORTED, LayerAccess, NameRecord
from sandpool.node.images.reference import Name

_MOST = 256  # proofs and providers that are kept, the newest; whose is forgotten proves it again


def proof(key: bytes, name: Name, credential: Credential) -> str:
    """Stands for a login at a registry. It tells nothing of the password to whoever lacks the key of this folder."""
    words = (name.registry, credential.username, credential.password)
    message = b"".join(len(word).to_bytes(8, "big") + word for word in (text.encode() for text in words))
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def may_use(record: NameRecord, proofs: Collection[str]) -> bool:
    return record.public or record.origin == IMPORTED or not set(proofs).isdisjoint(record.proofs)


def merged(old: NameRecord | None, new: NameRecord) -> NameRecord:
    """What was proved for an image stays true as long as the name stands for the same one."""
    if old is None or old.id != new.id:
        return new
    public = new.public or old.public or old.origin == IMPORTED
    return msgspec.structs.replace(new, public=public, proofs=_newest(old.proofs, new.proofs))


def provider(name: Name, digest: str) -> str:
    return f"{name.registry}/{name.repository}@{digest}"


def granted(old: LayerAccess, public: bool, providers: tuple[str, ...]) -> LayerAccess:
    return LayerAccess(public=old.public or public, providers=_newest(old.providers, providers))


def _newest(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return (*(one for one in old if one not in new), *new)[-_MOST:]
