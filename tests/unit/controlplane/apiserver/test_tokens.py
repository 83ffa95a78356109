from __future__ import annotations

import base64
import hashlib
import hmac

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sandpool.controlplane.apiserver.access.tokens import AUDIENCE, Claims, account_claims, prove, sign

KEY = b"k" * 43


def claims(audiences: list[str] | None = None) -> Claims:
    return account_claims("ns", "name", "uid-1", audiences or [AUDIENCE], 1000, 4600, "id-1")


def forged(header: bytes, payload: bytes, key: bytes = KEY) -> str:
    def segment(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    signed = f"{segment(header)}.{segment(payload)}"
    return f"{signed}.{segment(hmac.digest(key, signed.encode(), hashlib.sha256))}"


def test_what_was_signed_is_proved() -> None:
    assert prove(sign(claims(), KEY), KEY) == claims()


def test_another_key_proves_nothing() -> None:
    assert prove(sign(claims(), b"other" * 9), KEY) is None


def test_a_token_for_another_audience_is_not_for_us() -> None:
    assert prove(sign(claims(["vault"]), KEY), KEY) is None


def test_no_other_algorithm_even_if_the_signature_fits() -> None:
    payload = msgspec.json.encode(claims())
    assert prove(forged(b'{"alg":"HS256","typ":"JWT"}', payload), KEY) == claims()
    for header in (b'{"alg":"none"}', b'{"alg":"HS512","typ":"JWT"}', b'{"typ":"JWT","alg":"HS256"}'):
        assert prove(forged(header, payload), KEY) is None


def test_a_signed_payload_of_another_shape_is_refused() -> None:
    assert prove(forged(b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"x"}'), KEY) is None
    assert prove(forged(b'{"alg":"HS256","typ":"JWT"}', b"not json"), KEY) is None


def test_time() -> None:
    made = claims()
    assert [made.good_at(moment) for moment in (999, 1000, 4599.9, 4600)] == [False, True, True, False]


@given(st.text(max_size=200))
def test_any_text_is_answered(token: str) -> None:
    assert prove(token, KEY) is None


@given(st.data())
def test_no_changed_character_survives(data: st.DataObject) -> None:
    token = sign(claims(), KEY)
    at = data.draw(st.integers(0, len(token) - 2))  # the last one carries bits that no decoder looks at
    other = data.draw(st.sampled_from("ABCxyz09-_.").filter(lambda c: c != token[at]))
    assert prove(token[:at] + other + token[at + 1 :], KEY) is None
