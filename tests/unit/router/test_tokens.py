"""Signed tokens: what the contract says, and nothing that somebody made up."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.kube.errors import ConfigError
from sandpool.router.tokens import LONGEST, Scope, Signer, read_keys

KEY = b"0123456789abcdef0123456789abcdef"
SCOPE = Scope("default", "box", 1_000, "u-1", 8000)
signer = Signer([KEY])


def by_hand(payload: bytes, key: bytes = KEY) -> str:
    """A token as another implementation of the contract makes it."""
    encoded = base64.urlsafe_b64encode(payload).rstrip(b"=")
    mac = hmac.new(key, b"agent-sandbox/scoped-token/v1." + encoded, hashlib.sha256).digest()
    return f"v1.{encoded.decode()}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def test_it_is_spelled_as_the_contract_says() -> None:
    payload = json.dumps({"ns": "default", "name": "box", "exp": 1000}, separators=(",", ":")).encode()
    assert signer.sign(Scope("default", "box", 1000)) == by_hand(payload)
    assert signer.read(by_hand(b'{ "exp":1000, "later": [1], "name":"box", "ns":"default" }'), 999) == Scope(
        "default", "box", 1000
    )


@given(
    st.builds(
        Scope,
        namespace=st.from_regex(r"[a-z]{1,20}", fullmatch=True),
        name=st.from_regex(r"[a-z]{1,63}", fullmatch=True),
        expires=st.integers(1, 2**40),
        uid=st.text("0123456789abcdef-", max_size=36),
        port=st.none() | st.integers(1, 65535),
    )
)
def test_what_was_signed_is_read_back_until_it_ends(scope: Scope) -> None:
    token = signer.sign(scope)
    assert len(token) <= LONGEST
    assert signer.read(token, scope.expires - 0.001) == scope
    assert signer.read(token, scope.expires) is None  # exclusive


@given(st.integers(0, 400), st.characters(codec="utf-8"))
def test_no_character_can_be_changed(position: int, character: str) -> None:
    token = signer.sign(SCOPE)
    position %= len(token)
    changed = token[:position] + character + token[position + 1 :]
    assert changed == token or signer.read(changed, 0) is None


@given(st.text(max_size=300) | st.from_regex(r"v1\.[A-Za-z0-9_=-]{0,80}\.[A-Za-z0-9_=-]{40,45}", fullmatch=True))
def test_nothing_made_up_is_accepted(token: str) -> None:
    assert signer.read(token, 0) is None


@given(st.binary(max_size=200))
def test_whoever_has_the_key_can_still_not_break_it(payload: bytes) -> None:
    assert signer.read(by_hand(payload), 0) is None


@pytest.mark.parametrize(
    "payload",
    [
        b'{"ns":"default","name":"box"}',
        b'{"ns":"","name":"box","exp":9}',
        b'{"ns":"default","name":"","exp":9}',
        b'{"ns":"default","name":"box","exp":9.5}',
        b'{"ns":"default","name":"box","exp":"9"}',
        b'{"ns":"default","name":"box","exp":true}',
        b'{"ns":"default","name":"box","exp":9,"port":0}',
        b'{"ns":"default","name":"box","exp":9,"port":65536}',
        b'{"ns":"default","name":"box","exp":9,"port":"80"}',
        b'{"ns":["default"],"name":"box","exp":9}',
        b'["default","box",9]',
        b"[" * 1000,
    ],
)
def test_a_payload_of_another_shape_is_none(payload: bytes) -> None:
    assert signer.read(by_hand(payload), 0) is None


def test_a_token_has_one_spelling() -> None:
    token = signer.sign(SCOPE)
    for other in (token + "=", token + "\n", " " + token, token.replace("v1", "V1"), token[:-1], token + "A"):
        assert signer.read(other, 0) is None
    # The last of 43 characters carries two bits that mean nothing: they may not be anything.
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".index(token[-1])
    sibling = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[last ^ 1]
    assert signer.read(token[:-1] + sibling, 0) is None


def test_a_key_can_be_replaced_while_its_tokens_are_in_use() -> None:
    new = b"n" * 32
    both = Signer([new, KEY])
    assert both.read(signer.sign(SCOPE), 0) == SCOPE
    assert Signer([new]).read(both.sign(SCOPE), 0) == SCOPE
    assert Signer([new]).read(signer.sign(SCOPE), 0) is None


def test_short_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        Signer([b"x" * 31])
    short = tmp_path / "key"
    short.write_text(" " * 40 + "x" * 31 + "\n")
    with pytest.raises(ConfigError, match="openssl rand") as caught:
        read_keys([short])
    assert "xxx" not in str(caught.value)


def test_keys_come_from_files_without_white_space(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"  " + KEY + b"\n")
    assert read_keys([file]).read(signer.sign(SCOPE), 0) == SCOPE
    with pytest.raises(ConfigError, match="is not there"):
        read_keys([tmp_path / "absent"])


def test_a_folder_holds_keys_by_name_as_a_mounted_secret_does(tmp_path: Path) -> None:
    data = tmp_path / "..2026"
    data.mkdir()
    for name, key in (("1-new", b"n" * 32), ("2-old", KEY)):
        (data / name).write_bytes(key)
        (tmp_path / name).symlink_to(data / name)
    both = read_keys([tmp_path])
    assert both.read(signer.sign(SCOPE), 0) == SCOPE
    assert Signer([b"n" * 32]).read(both.sign(SCOPE), 0) == SCOPE


def test_without_a_key_no_token_is_known(tmp_path: Path) -> None:
    none = read_keys([tmp_path])
    assert not none.able
    assert none.read(signer.sign(SCOPE), 0) is None
    assert none.read(by_hand(b'{"ns":"default","name":"box","exp":9}', b""), 0) is None
