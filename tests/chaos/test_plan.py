"""A plan is decided by its seed alone."""

import sys

import pytest

from tests.chaos import __main__ as chaos
from tests.chaos import faults
from tests.chaos.plan import MOST_AT_ONCE, Kind, exactly, plan, shown
from tests.chaos.shape import SHAPES

KINDS = [Kind("a"), Kind("b", loses=True), Kind("c", weight=5)]


def test_a_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert plan(7, KINDS, 30, is_complete=True) == plan(7, KINDS, 30, is_complete=True)
    assert plan(7, KINDS, 30, is_complete=True) != plan(8, KINDS, 30, is_complete=True)


def test_a_step_decides_the_same_wherever_it_is_run() -> None:
    [first, *_] = plan(7, KINDS, 30, is_complete=False)
    assert [first[0].rng.random() for _ in range(2)] == [first[0].rng.random()] * 2


def test_what_may_lose_writes_opens_a_group() -> None:
    for group in plan(3, KINDS, 200, is_complete=False):
        assert 1 <= len(group) <= MOST_AT_ONCE
        assert all(step.fault != "b" for step in group[1:])


@pytest.mark.parametrize("shape", SHAPES)
def test_a_complete_plan_has_every_fault_of_its_shape(shape: str) -> None:
    kinds = [fault.kind for fault in faults.of(shape)]
    steps = [step for group in plan(1, kinds, len(kinds) + 5, is_complete=True) for step in group]
    assert {step.fault for step in steps} == {kind.name for kind in kinds}
    assert [step.number for step in steps] == list(range(1, len(kinds) + 6))


def test_a_complete_plan_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="3 kinds of faults do not fit into 2 steps"):
        plan(1, KINDS, 2, is_complete=True)


def test_chosen_faults_come_in_their_order_each_by_itself() -> None:
    assert shown(exactly(1, ["b", "a"])) == "[b] [a]"


def test_too_few_steps_for_all_faults_are_refused_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Was a traceback, after the shapes before had run."""
    monkeypatch.setattr(sys, "argv", ["chaos", "--steps", "12"])
    with pytest.raises(SystemExit):
        chaos.arguments()
    assert "--steps is" in capsys.readouterr().err
