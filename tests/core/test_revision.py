"""Revisions: compared as a whole, and read back as they were written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.revision import ABSENT, Revision, Stamp

numbers = st.integers(min_value=0, max_value=2**53)
marks = st.text("0123456789abcdef", min_size=8, max_size=8)


def test_the_same_number_with_another_mark_is_another_revision() -> None:
    assert Revision(100, "aa") != Revision(100, "bb")


@given(numbers, marks)
def test_a_revision_is_read_as_it_was_written(n: int, mark: str) -> None:
    assert Revision.parse(str(Revision(n, mark))) == Revision(n, mark)


@given(marks, numbers, marks)
def test_a_stamp_is_read_as_it_was_written(epoch: str, n: int, mark: str) -> None:
    stamp = Stamp(epoch, n, mark)
    assert Stamp.parse(str(stamp)) == stamp
    assert stamp.revision == Revision(n, mark)


def test_what_was_never_published_has_a_stamp_that_can_come_back() -> None:
    """A listen on a URI before its first publish is acknowledged with it and may be resumed from it."""
    assert Revision.parse(str(ABSENT)) == ABSENT
    stamp = Stamp("e1", *ABSENT)
    assert Stamp.parse(str(stamp)) == stamp


@pytest.mark.parametrize("text", ["", ":", "x:aa", "-1:aa", "1", " 1:aa", "1_0:aa", "\u0661:aa", "²:a"])
def test_what_is_not_a_revision_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a revision"):
        Revision.parse(text)


@pytest.mark.parametrize("text", ["", ".", "..", "e1", "e1.5", ".5.aa", "e1.x.aa", "e1.-5.aa", "e1. 5.aa"])
def test_what_is_not_a_stamp_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a revision"):
        Stamp.parse(text)


def test_numbers_longer_than_python_reads_are_refused_and_no_crash() -> None:
    with pytest.raises(ValueError, match="digits"):
        Revision.parse("9" * 5000 + ":aa")
