"""How long a reader waits after a wake-up (broker/tailing/tail.py, rule 3)."""

import pytest

from broker.tailing.tail import PACE_LOADED, PACE_MAX, PACE_MIN, pause


@pytest.mark.parametrize("replicas", [1, 3, 6])
def test_a_lone_change_is_followed_by_the_next_within_two_milliseconds(replicas: int) -> None:
    assert pause(replicas, 1) == PACE_MIN


def test_a_hundred_replicas_wake_redis_at_most_3500_times_a_second() -> None:
    assert 100 / pause(100, 1) < 3500


@pytest.mark.parametrize(("rate", "expected"), [(1_000, PACE_MIN), (4_000, PACE_MIN), (20_000, PACE_LOADED)])
def test_the_wait_settles_at_its_least_or_by_load_at_ten_milliseconds(rate: int, expected: float) -> None:
    waited = PACE_MIN
    for _ in range(50):
        waited = pause(1, round(rate * waited))
    assert waited == expected
    assert pause(1, 1_000_000) < PACE_MAX
