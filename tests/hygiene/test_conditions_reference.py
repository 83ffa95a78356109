"""The reference page of conditions lists every reason, with the words that the code has for it."""

from __future__ import annotations

from pathlib import Path

from sandpool.model.reasons import Type, table

PAGE = Path(__file__).parents[2] / "docs/reference/conditions.md"


def test_the_page_has_every_reason() -> None:
    assert table() in PAGE.read_text(), (
        "docs/reference/conditions.md: replace the table by what reasons.table() returns"
    )


def test_the_page_explains_every_condition() -> None:
    text = PAGE.read_text()
    assert [type_ for type_ in Type if f"**`{type_}`**" not in text] == []
