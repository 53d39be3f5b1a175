"""The judgement of a soak: a leak is seen, and noise is none."""

import random

from tests.soak.samples import Series


def _series(rise: float) -> Series:
    rng = random.Random(1)
    series = Series("memory", "MB")
    for at in range(0, 600, 5):
        series.add(at, 100 + rise * at / 600 + rng.uniform(-0.5, 0.5))
    return series


def test_what_only_scatters_does_not_grow() -> None:
    assert not _series(0).trend(60).grows


def test_a_leak_of_some_percent_is_seen() -> None:
    assert _series(5).trend(60).grows


def test_what_fills_up_before_the_measured_part_does_not_count() -> None:
    series = Series("keys", "")
    for at in range(0, 600, 5):
        series.add(at, min(at, 300))
    assert series.trend(0).grows
    assert not series.trend(320).grows
