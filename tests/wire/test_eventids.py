"""SSE event ids: a proof for the session that they were given to, and for nobody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.identity import SessionId, new_session_id
from broker.wire import eventid

pytestmark = pytest.mark.requirement("stream.strange-id")

MINE = eventid.tag(SessionId("a" * 43))


@given(st.from_regex(r"[A-Za-z0-9_\-]{1,64}", fullmatch=True), st.integers(0, 10**19 - 1))
def test_an_id_of_this_session_is_read_back(epoch: str, n: int) -> None:
    text = eventid.format(MINE, epoch, n)
    assert text.isascii()
    assert text.isprintable()
    assert eventid.parse(text, MINE) == (epoch, n)


@pytest.mark.requirement("stream.foreign-id")
def test_an_id_of_another_session_proves_nothing() -> None:
    other = eventid.tag(new_session_id())
    assert eventid.parse(eventid.format(other, "e", 5), MINE) is None


def test_the_tag_is_the_same_on_every_replica_and_does_not_show_the_session() -> None:
    session = new_session_id()
    assert eventid.tag(session) == eventid.tag(SessionId(str(session)))
    assert not any(session[i : i + 6] in eventid.tag(session) for i in range(37))
    assert len({eventid.tag(new_session_id()) for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "1700000000000-0",
        MINE,
        f"{MINE}.",
        f"{MINE}..1",
        f"{MINE}.e",
        f"{MINE}.e.",
        f"{MINE}.e.-1",
        f"{MINE}.e.01",
        f"{MINE}.e.+1",
        f"{MINE}.e.1.2",
        f"{MINE}.e.1 ",
        f" {MINE}.e.1",
        f"{MINE}.e.1\n",
        f"{MINE}.e.1\0",
        f"{MINE}.e.\u0661",
        f"{MINE}.é.1",
        f"{MINE}.e.{'9' * 20}",
        f"{MINE}.{'e' * 65}.1",
        f"{MINE.upper()}x.e.1",
        "x" * 1_000_000,
    ],
)
def test_anything_else_proves_nothing_and_raises_nothing(text: str) -> None:
    assert eventid.parse(text, MINE) is None


@given(st.text())
def test_no_text_makes_reading_an_id_raise(text: str) -> None:
    assert eventid.parse(text, MINE) is None
    proof = eventid.parse(f"{MINE}.{text}", MINE)
    assert proof is None or eventid.format(MINE, *proof) == f"{MINE}.{text}"
