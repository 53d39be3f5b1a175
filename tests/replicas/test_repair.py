"""A log that broke is repaired by comparing: nobody is left untold (promise 2; design section 3).

Redis' keys are damaged under a running replica; then something changes, and both eras must be told of it.
The last test is the control: without the comparison the damage stays.
"""

import pytest

from broker.core.errors import BrokerError
from tests.replicas.conftest import LISTENED, SUBSCRIBED, TENANT, Bench
from tests.support.fault_proxy import READERS
from tests.support.mcp import Modern, RpcError
from tests.support.wait import stays, until

SILENT = 6.0
"""Seconds: the 4 s that promise 2 allows after a silent loss, and some for a busy machine."""


DAMAGES = {
    "head gone": ("DEL", "HEAD"),
    "log gone": ("DEL", "LOG"),
    "both gone": ("DEL", "LOG", "HEAD"),
    "log trimmed to nothing": ("XTRIM", "LOG", "MAXLEN", "0"),
    "head went back": ("HSET", "HEAD", "n", "7"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_change_after_damage_to_head_or_log_is_told(bench: Bench, damage: tuple[str, ...]) -> None:
    fleet = bench.fleet()
    await bench.publish("before")
    watch = await bench.watch(fleet.url)
    bench.run(*damage)
    for text in ("after", "and after that"):
        counts = watch.counts
        await bench.publish(text)
        await watch.cued_after(counts, SILENT)
        assert await watch.read() == text


async def test_where_everything_is_gone_listeners_are_told_and_sessions_end_cleanly(bench: Bench) -> None:
    """FLUSHALL: a session that Redis lost cannot answer, so its client must learn that it is gone."""
    fleet = bench.fleet()
    await bench.publish("before")
    watch = await bench.watch(fleet.url)
    bench.run("FLUSHALL")
    await watch.listening.cue(LISTENED, seconds=SILENT)
    assert await watch.stream.end(SILENT) == "clean"
    with pytest.raises(RpcError) as caught:
        await watch.session.ask("ping")
    assert caught.value.status == 404
    await bench.publish("after")
    await watch.listening.cue(LISTENED, 2, SILENT)
    assert (await watch.modern.read(LISTENED))[0]["text"] == "after"


async def test_a_log_of_a_wrong_type_is_an_error_to_publishers_and_heals(bench: Bench) -> None:
    fleet = bench.fleet()
    await bench.publish("before")
    watch = await bench.watch(fleet.url)
    bench.run("RENAME", "LOG", "saved")
    bench.run("SET", "LOG", "not a stream")
    with pytest.raises(BrokerError) as caught:
        await bench.publish("refused")
    assert str(caught.value).endswith(".")
    assert await watch.read() == "before"
    bench.run("RENAME", "saved", "LOG")
    counts = watch.counts
    await bench.publish("after")
    await watch.cued_after(counts, SILENT)


async def test_a_fork_refilled_to_the_same_number_is_told(bench: Bench) -> None:
    """U is told at n; the log goes back and another change of U takes the same n, in the same epoch."""
    fleet = bench.fleet()
    await bench.publish("before")
    watch = await bench.watch(fleet.url)
    snapshot = bench.snapshot()
    lost = await bench.publish("lost")
    await watch.cued_after((0, 0), SILENT)
    snapshot.restore()
    counts = watch.counts
    kept = await bench.publish("kept")
    assert (kept.epoch, kept.n) == (lost.epoch, lost.n)
    assert kept.mark != lost.mark
    await watch.cued_after(counts, SILENT)
    assert await watch.read() == "kept"


async def test_a_fork_that_grew_past_the_reader_is_told(bench: Bench) -> None:
    """The reader stands at n; after the rollback the log grows to n + 2, so n + 1 looks contiguous."""
    fleet = bench.fleet()
    await bench.publish("before")
    watch = await bench.watch(fleet.url)
    snapshot = bench.snapshot()
    await bench.publish("lost")
    await watch.cued_after((0, 0), SILENT)
    snapshot.restore()
    counts = watch.counts
    await bench.publish("kept")
    for number in range(2):
        await bench.publisher.publish("docs://other", str(number))
    await watch.cued_after(counts, SILENT)
    assert await watch.read() == "kept"


async def test_an_event_id_of_before_a_rollback_proves_nothing_after_it(bench: Bench) -> None:
    """A number is used twice: a client was told of all up to n, then n goes back and U changes below it.

    The bug: its id, of the same epoch, was taken for proof that it had heard of the new change as well.
    """
    fleet = bench.fleet()
    await bench.publish("before")
    watch = await bench.watch(fleet.url)
    await watch.session.subscribe("docs://other")
    snapshot = bench.snapshot()
    for number in range(5):
        await bench.publisher.publish("docs://other", str(number))
        await until(lambda seen=number: watch.stream.cues.count("docs://other") > seen, "told", SILENT)
    last = watch.stream.last_id
    assert last is not None
    await watch.stream.close()
    snapshot.restore()
    kept = await bench.publish("kept")
    assert kept.n < int(last.rpartition(".")[2])
    stream = await watch.session.get_stream(last)
    await stream.cue(SUBSCRIBED, seconds=SILENT)


async def test_contents_that_a_rollback_took_back_are_told(bench: Bench) -> None:
    fleet = bench.fleet()
    await bench.publish("before")
    watch = await bench.watch(fleet.url)
    snapshot = bench.snapshot()
    await bench.publish("lost")
    await watch.cued_after((0, 0), SILENT)
    counts = watch.counts
    snapshot.restore()
    await watch.cued_after(counts, SILENT)
    assert await watch.read() == "before"


async def test_a_newcomer_that_finds_a_missed_change_has_the_earlier_watchers_told_at_once(
    bench: Bench,
) -> None:
    """Two watchers and a gap: the reader hears nothing, the change is trimmed away, a second client comes."""
    fleet = bench.fleet()
    await bench.publish("before")
    watch = await bench.watch(fleet.url)
    bench.proxy.hold(b"XREAD")
    await until(lambda: bench.proxy.held == READERS, "the log's reader held back")
    await bench.publish("missed")
    bench.run("XTRIM", "LOG", "MAXLEN", "0")
    newcomer = await Modern(fleet.url, TENANT, bench.http).listen([LISTENED, SUBSCRIBED])
    await watch.cued_after((0, 0), 1.0)
    bench.proxy.release()
    counts = watch.counts
    await bench.publish("after")
    await watch.cued_after(counts, SILENT)
    await newcomer.cue(SUBSCRIBED)


async def test_changes_that_were_trimmed_before_they_were_read_are_told(bench: Bench) -> None:
    fleet = bench.fleet()
    await bench.publish("before")
    watch = await bench.watch(fleet.url)
    bench.proxy.hold(b"XREAD")
    await until(lambda: bench.proxy.held == READERS, "the log's reader held back")
    for number in range(5):
        await bench.publish(f"missed {number}")
    bench.run("XTRIM", "LOG", "MAXLEN", "0")
    bench.proxy.release()
    await watch.cued_after((0, 0), SILENT)
    assert await watch.read() == "missed 4"


async def test_the_control_without_the_comparison_the_damage_stays(bench: Bench) -> None:
    """Every repair above leans on the comparison: switched off, a rollback and a gap go untold."""
    fleet = bench.fleet(MODULE="tests.support.without", WITHOUT="resync")
    await bench.publish("before")
    watch = await bench.watch(fleet.url)
    snapshot = bench.snapshot()
    await bench.publish("lost")
    await watch.cued_after((0, 0), SILENT)
    counts = watch.counts
    snapshot.restore()
    await stays(lambda: watch.counts == counts, "untold", 4.0)
    # It is alive all the same: what comes next is told.
    await bench.publish("next")
    await watch.cued_after(counts, SILENT)
