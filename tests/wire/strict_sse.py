"""A strict reader of event streams, for tests: whole frames and whole comments, and nothing else.

It splits where the pickiest reader in the field splits (every Unicode line separator), and refuses what the
most forgiving would mend.
"""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Frame:
    """One event: its id, name and retry where it had them, and its data."""

    id: str | None
    event: str | None
    retry: int | None
    data: str | None

    @property
    def message(self) -> Any:
        assert self.event == "message"
        assert self.data
        return json.loads(self.data)


def frames(stream: bytes) -> list[Frame]:
    """Read a whole stream; lines outside of an event are comments or a retry.

    Raises:
        AssertionError: anything that some reader would take otherwise.
    """
    text = stream.decode("utf-8")
    assert "\r" not in text
    assert "\0" not in text
    lines = text.split("\n")
    assert lines.pop() == "", "the last line is cut off"
    assert [piece for line in lines for piece in line.splitlines() or [""]] == lines, (
        "a hidden line separator"
    )
    read: list[Frame] = []
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            assert not fields or set(fields) == {"retry"}, "a comment inside a frame"
        elif line:
            name, colon, value = line.partition(":")
            assert colon
            assert name in ("id", "event", "retry", "data"), line
            assert name not in fields, f"{name} twice in a frame"
            fields[name] = value.removeprefix(" ")
        else:
            assert fields, "a blank line that ends no event"
            read.append(_frame(fields))
            fields = {}
    assert set(fields) <= {"retry"}, "a frame is cut off"
    return read


def _frame(fields: dict[str, str]) -> Frame:
    retry = fields.get("retry")
    return Frame(
        fields.get("id"), fields.get("event"), None if retry is None else int(retry), fields.get("data")
    )
