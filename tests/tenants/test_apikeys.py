"""The text of an API key."""

import re

import pytest

from broker.core import apikey


def test_a_key_is_found_by_a_secret_scanner_wherever_it_stands() -> None:
    key = apikey.new()
    assert re.findall(apikey.PATTERN, f'export BROKER_KEY="{key.text}" # mine') == [key.text]


def test_a_key_carries_its_id_in_the_clear_and_256_bits_that_are_not() -> None:
    key = apikey.new()
    prefix, name, secret = key.text.split("_")
    assert (prefix, name) == ("mrb", key.id)
    assert 62 ** (len(secret) - 6) > 2**256


@pytest.mark.parametrize("at", range(63))
def test_one_wrong_character_is_told_without_asking_anybody(at: int) -> None:
    text = apikey.new().text
    other = "x" if text[at] != "x" else "y"
    assert not apikey.is_well_formed(text[:at] + other + text[at + 1 :])


def test_a_key_that_was_cut_or_bent_is_none() -> None:
    text = apikey.new().text
    assert apikey.is_well_formed(text)
    for bent in (text.lower(), text.upper(), text[:-1], f"{text}0", f"{text}\n", f" {text}", ""):
        assert not apikey.is_well_formed(bent)


def test_what_is_stored_tells_nothing_of_the_key() -> None:
    key = apikey.new()
    stored = apikey.digest(key.text)
    assert re.fullmatch("[0-9a-f]{64}", stored)
    assert key.text[15:30] not in stored
