"""The ledger counts what was owed and told, and the report says so."""

from tests.chaos.ledger import Ledger
from tests.chaos.report import Run, by_fault, table, verdict

KEY = ("acme", "docs://a")


def finished(ledger: Ledger) -> Run:
    return Run("standalone", "valkey 9", 7, "[crash]", ledger, 12.3)


def test_a_recovery_begins_when_redis_answers_or_when_the_publish_was_acknowledged() -> None:
    ledger = Ledger()
    assert ledger.told(KEY, 11.5, 10.0) == 1.5
    ledger.at[KEY] = 11.0
    assert ledger.told(KEY, 11.5, 10.0) == 0.5
    assert ledger.told(KEY, 9.0, 10.0) == 0.0
    assert (ledger.owed, ledger.cued) == (3, 3)


def test_who_came_back_by_himself_has_no_recovery() -> None:
    ledger = Ledger()
    assert ledger.told(KEY, None, 10.0) == 0.0
    assert (ledger.owed, ledger.cued, ledger.reread) == (1, 0, 1)


def test_a_lost_cue_and_a_late_one_are_the_verdict_with_the_way_to_replay_it() -> None:
    ledger = Ledger()
    assert verdict(finished(ledger)) == ""
    ledger.missed("crash: somebody knows nothing")
    ledger.recovered("crash", 2.5, 2.0)
    said = verdict(finished(ledger))
    assert "lost: crash: somebody knows nothing" in said
    assert "late: crash: 2.50 s, promised 2 s" in said
    assert 'make chaos CHAOS="--shapes standalone --seeds 7"' in said


def test_the_table_has_a_row_for_each_run_and_the_worst_of_each_fault() -> None:
    ledger = Ledger(acknowledged=1234)
    ledger.recovered("crash", 0.5, 2.0)
    ledger.recovered("crash", 0.25, 2.0)
    ledger.recovered("crash reset", 0.75, 2.0)
    ledger.calm = [number / 1000 for number in range(1, 101)]
    [_, _, row] = table([finished(ledger)]).splitlines()
    assert row == "| standalone | 7 | 0 | 1,234 | 0 | 0 | 0 | 0 | 0 | 0 | 0.75 | 100 | 12 |"
    assert by_fault([finished(ledger)]).splitlines()[2:] == ["| crash | 0.50 s |"]
