"""What is made of results: the capacity model, and the page."""

import pytest

from tests.bench import goals, report
from tests.bench.goals import Bound
from tests.bench.model import CHECKED, TAILED_RATE, Costs, Installation, fit, need
from tests.bench.results import Results, load

COSTS = Costs(
    script_us=50,
    wake_us=20,
    entry_us=1.5,
    applied_us=2,
    cue_us=10,
    stream_kb=12,
    replica_kb=80_000,
    idle_us=1,
)


def test_the_model_finds_the_costs_that_made_its_figures() -> None:
    found = fit(
        lambda replicas: COSTS.redis_us(replicas, TAILED_RATE),
        lambda script, wake, entry: Costs(script, wake, entry, 2, 10, 12, 80_000, 1),
    )
    assert found.script_us == pytest.approx(50)
    assert found.wake_us == pytest.approx(20)
    assert found.entry_us == pytest.approx(1.5)
    assert found.redis_us(CHECKED, TAILED_RATE) == pytest.approx(COSTS.redis_us(CHECKED, TAILED_RATE))


def test_twice_the_cells_need_less_than_half_of_redis_each() -> None:
    one, two = (need(COSTS, Installation(), cells) for cells in (5, 10))
    assert two.redis_core < one.redis_core / 2, "a cell has fewer changes, and fewer replicas to tell of each"
    assert two.redis_mb_s == pytest.approx(one.redis_mb_s / 4)
    assert two.replica_gb == one.replica_gb, "a replica has as many streams as before"


def test_a_goal_that_was_not_measured_is_neither_met_nor_missed() -> None:
    nothing = Results({}, [])
    assert {bound.verdict(nothing) for goal in goals.GOALS for bound in goal.bounds} == {("-", None)}


def test_a_bound_is_met_on_its_own_side() -> None:
    nothing = Results({}, [])
    assert Bound("", 2, lambda _: 2.0).verdict(nothing)[1]
    assert not Bound("", 2, lambda _: 2.1).verdict(nothing)[1]
    assert Bound("", 2, lambda _: 2.1, is_most=False).verdict(nothing)[1]
    assert not Bound("", 2, lambda _: 1.9, is_most=False).verdict(nothing)[1]


def test_the_page_says_what_its_results_say() -> None:
    page = report.PAGE.read_text()
    assert report.page(load(report.KEPT), page) == page, "run make bench-report"


def test_each_plot_of_the_page_is_there() -> None:
    results = load(report.KEPT)
    for figure in report.figures(results):
        assert (report.FOLDER / f"{figure['name']}.svg").stat().st_size > 1000
        assert all(len(line["x"]) > 1 for line in figure["lines"]), f"{figure['name']} has one point"
