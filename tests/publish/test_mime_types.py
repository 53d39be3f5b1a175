"""A type is checked for its form where it is published or declared, and kept byte for byte."""

import json

import pytest

from broker.core.errors import InvalidContents
from broker.core.publication import Contents, encode_contents, encode_meta


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "TEXT/Markdown", "application/vnd.a.b+json", "text/html;profile=mcp-app",
     'text/plain ; charset="utf-8"', "model/vnd.x_y-z^1"],
)  # fmt: skip
def test_a_type_with_its_form_is_kept_byte_for_byte(kind: str) -> None:
    assert json.loads(encode_meta("a://b", kind, {}))["mimeType"] == kind
    assert json.loads(encode_contents("a://b", "x", kind, 100)[0])[0]["mimeType"] == kind


@pytest.mark.parametrize(
    "kind", ["text", "/plain", "text/", "text/pla in", "a/b/c", "text/plain,x/y", ".a/b"]
)
def test_a_type_without_its_form_is_refused_with_a_sentence(kind: str) -> None:
    entry = Contents(text="x", mime_type=kind)
    for refuse in (
        lambda: encode_meta("a://b", kind, {}),
        lambda: encode_contents("a://b", entry, None, 100),
    ):
        with pytest.raises(InvalidContents, match="write type/subtype"):
            refuse()
