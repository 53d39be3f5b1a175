"""The text of an API key: `mrb_<id>_<secret><checksum>`.

The prefix and the fixed form let secret scanners find a key that leaked (`PATTERN`); the checksum tells a key
that was mistyped or cut from one that is unknown, without asking Redis. The id may be shown and logged; it
names the key for its owner. Base 62 throughout, so that a double click takes the whole key.

Only the SHA-256 of the text is stored. A slow hash (bcrypt and its like) protects what people think up; a
secret of 256 random bits cannot be guessed however fast the hash, and the hash is computed at each request.
"""

import hashlib
import re
import secrets
import zlib
from typing import NamedTuple

PREFIX = "mrb_"
PATTERN = re.compile(r"mrb_[0-9A-Za-z]{10}_[0-9A-Za-z]{49}")
"""What a secret scanner looks for."""

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID = 10
_SECRET = 43
"""62^43 is above 2^256."""
_CHECKSUM = 6


class ApiKey(NamedTuple):
    """A new key: `text` is shown once and never stored."""

    id: str
    text: str


def new() -> ApiKey:
    """Return a fresh key."""
    name = _random(_ID)
    body = f"{PREFIX}{name}_{_random(_SECRET)}"
    return ApiKey(name, body + _checksum(body))


def is_well_formed(text: str) -> bool:
    """Whether `text` could be a key of ours: its form and its checksum."""
    return PATTERN.fullmatch(text) is not None and text[-_CHECKSUM:] == _checksum(text[:-_CHECKSUM])


def digest(text: str) -> str:
    """Return what is stored instead of a key: 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _checksum(body: str) -> str:
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(_CHECKSUM):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits
