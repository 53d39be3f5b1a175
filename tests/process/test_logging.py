"""Events: one line each, with their fields, in a form for people or for machines."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from broker.telemetry import logging as events

log = logging.getLogger("broker.tests")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Give the loggers back to pytest."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def _json(stream: io.StringIO) -> dict[str, Any]:
    [line] = stream.getvalue().splitlines()
    return json.loads(line)


def test_an_event_is_one_json_object_with_its_fields() -> None:
    stream = io.StringIO()
    events.configure("info", "json", stream)
    log.info("serving", extra={"port": 8000})
    event = _json(stream)
    assert (
        event.items() >= {"event": "serving", "port": 8000, "level": "info", "logger": "broker.tests"}.items()
    )


def test_bound_fields_are_on_every_event_of_their_context_and_on_none_outside() -> None:
    stream = io.StringIO()
    events.configure("info", "text", stream)
    with events.bound(tenant="acme"), events.bound(session="abc"):
        log.info("inside")
    log.info("outside")
    inside, outside = stream.getvalue().splitlines()
    assert "tenant=acme" in inside
    assert "session=abc" in inside
    assert "tenant" not in outside


def test_a_field_cannot_forge_an_event_of_its_own() -> None:
    stream = io.StringIO()
    events.configure("info", "text", stream)
    log.info("read", extra={"uri": "x\n12:00:00 error    hacked"})
    assert len(stream.getvalue().splitlines()) == 1
    assert "x\\n12:00:00" in stream.getvalue()


def test_a_field_cannot_pretend_to_be_the_event() -> None:
    stream = io.StringIO()
    events.configure("info", "json", stream)
    log.info("read", extra={"event": "other", "level": "none"})
    assert _json(stream)["event"] == "read"
    assert _json(stream)["level"] == "info"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_belongs_to_its_event(form: Any) -> None:
    stream = io.StringIO()
    events.configure("info", form, stream)
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("failed")
    assert "ValueError: broken" in stream.getvalue()
    if form == "json":
        assert _json(stream)["event"] == "failed"


def test_what_is_below_the_level_and_the_chatter_of_libraries_stay_silent() -> None:
    stream = io.StringIO()
    events.configure("info", "text", stream)
    log.debug("hidden")
    logging.getLogger("uvicorn.error").info("Started server process")
    assert stream.getvalue() == ""
    logging.getLogger("uvicorn.error").warning("odd")
    assert "odd" in stream.getvalue()
