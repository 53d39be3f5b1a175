"""How a broker's process starts, says where it is, and leaves (design, promise 9)."""

import signal
import socket
from collections.abc import Callable
from http.client import RemoteDisconnected
from pathlib import Path

import pytest

from tests.process.conftest import Program, Start
from tests.support.wait import until_sync

STUB = str(Path(__file__).with_name("stub.py"))
NOWHERE = "redis://127.0.0.1:1/0"

StartStub = Callable[..., Program]


@pytest.fixture
def stub(start: Start, tmp_path: Path) -> StartStub:
    def go(*flags: str, **settings: str) -> Program:
        fixed = {"BROKER_REDIS_URL": NOWHERE, "BROKER_LINGER_SECONDS": "0"}
        return start("-m", "tests.process.stub", str(tmp_path), *flags, **{**fixed, **settings})

    return go


def _is_refusing(program: Program, port: int) -> bool:
    try:
        program.get("/", port)
    except ConnectionRefusedError:
        return True
    except (ConnectionResetError, RemoteDisconnected):
        return False
    return False


def test_the_ready_file_tells_the_ports_that_were_free(stub: StartStub) -> None:
    program = stub()
    program.wait_ready()
    assert program.get("/") == (200, f"state {NOWHERE}")
    assert program.get("/livez", program.internal_port) == (200, '{"status": "alive"}\n')
    assert program.get("/readyz", program.internal_port)[0] == 200
    status, body = program.get("/readyz?strict", program.internal_port)
    assert status == 503
    assert "redis was asked for" in body
    assert "broker_ready 1" in program.get("/metrics", program.internal_port)[1]
    assert program.get("/mcp", program.internal_port)[0] == 404


def test_health_is_on_the_internal_port_alone(stub: StartStub) -> None:
    program = stub()
    program.wait_ready()
    assert program.get("/livez")[1].startswith("state")


def test_answers_carry_a_date_and_do_not_name_the_server(stub: StartStub) -> None:
    program = stub()
    program.wait_ready()
    connection = program.connect()
    connection.request("GET", "/")
    response = connection.getresponse()
    assert response.getheader("date")
    assert response.getheader("server") is None
    connection.close()


def test_a_leaving_replica_is_not_ready_and_serves_until_its_requests_are_answered(
    stub: StartStub, tmp_path: Path
) -> None:
    program = stub(BROKER_LINGER_SECONDS="20")
    program.wait_ready()
    internal = program.internal_port
    slow = program.connect()
    slow.request("GET", "/slow")
    program.process.terminate()
    until_sync(lambda: program.get("/readyz", internal)[0] == 503, "not ready")
    assert program.get("/livez", internal)[0] == 200
    late = program.connect()
    late.request("GET", "/")
    response = late.getresponse()
    assert response.status == 200
    assert response.getheader("connection") == "close"
    assert response.read().startswith(b"state")
    (tmp_path / "release").touch()
    assert slow.getresponse().status == 200
    assert program.process.is_running


def test_the_last_requests_are_answered_before_the_process_ends(stub: StartStub, tmp_path: Path) -> None:
    program = stub()
    program.wait_ready()
    port = program.port
    slow = program.connect()
    slow.request("GET", "/slow")
    stream = program.connect()
    stream.request("GET", "/stream")
    response = stream.getresponse()
    assert response.read(1) == b"x"
    program.process.terminate()
    assert response.read().startswith(b"state")
    until_sync(lambda: _is_refusing(program, port), "the public port closed")
    assert program.process.is_running
    (tmp_path / "release").touch()
    assert slow.getresponse().status == 200
    assert program.process.wait() == 0
    assert (tmp_path / "stopped").exists()


def test_a_request_that_never_ends_does_not_outlive_the_drain_window(stub: StartStub, tmp_path: Path) -> None:
    program = stub(BROKER_DRAIN_SECONDS="0.5")
    program.wait_ready()
    slow = program.connect()
    slow.request("GET", "/slow")
    until_sync(lambda: program.get("/")[0] == 200, "served")
    program.process.terminate()
    assert program.process.wait(4) == 0
    assert (tmp_path / "stopped").exists()
    # That it was cut is one line of the log, and no failure of ours.
    assert "Traceback" not in program.process.tail(1000)
    assert "request_cut" in program.process.tail(1000)


def test_a_drain_that_never_ends_is_cut_at_the_window(stub: StartStub) -> None:
    program = stub("--stuck", BROKER_DRAIN_SECONDS="0.3")
    program.wait_ready()
    program.process.terminate()
    assert program.process.wait(5) == 0
    assert "drain_window_over" in program.process.tail()


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(stub: StartStub, first: signal.Signals) -> None:
    program = stub("--stuck")
    program.wait_ready()
    internal = program.internal_port
    program.process.send(first)
    until_sync(lambda: program.get("/readyz", internal)[0] == 503, "leaving")
    program.process.send(signal.SIGINT)
    assert program.process.wait(2) == 128 + signal.SIGINT


def test_somebody_at_a_keyboard_does_not_wait_for_a_balancer(stub: StartStub) -> None:
    program = stub(BROKER_LINGER_SECONDS="20", BROKER_DRAIN_SECONDS="20")
    program.wait_ready()
    program.process.send(signal.SIGINT)
    assert program.process.wait(5) == 0


def test_an_app_that_dies_ends_the_process_with_an_error(stub: StartStub, tmp_path: Path) -> None:
    program = stub("--die")
    program.wait_ready()
    (tmp_path / "die").touch()
    assert program.process.wait() == 1
    assert "the reader died" in program.process.tail()


def test_an_app_that_cannot_start_says_so_in_a_sentence(stub: StartStub) -> None:
    program = stub("--fail")
    assert program.process.wait() == 2
    assert "This Redis holds another schema; choose another BROKER_PREFIX." in program.process.tail()
    assert "Traceback" not in program.process.tail()
    assert not program.is_ready


def test_a_port_in_use_is_a_sentence_that_names_the_variable(stub: StartStub) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        program = stub(BROKER_PORT=str(port))
        assert program.process.wait() == 2
    text = program.process.tail()
    assert f"Port {port} of 127.0.0.1 is in use" in text
    assert "BROKER_PORT" in text
    assert "Traceback" not in text


def test_an_address_of_another_machine_is_a_sentence(stub: StartStub) -> None:
    program = stub(BROKER_HOST="192.0.2.1", BROKER_AUTH__ACCEPT_OPEN="true")
    assert program.process.wait() == 2
    assert "is not on this machine: set BROKER_HOST" in program.process.tail()


def test_an_open_broker_refuses_the_network_until_told_otherwise(stub: StartStub) -> None:
    program = stub(BROKER_HOST="0.0.0.0")
    assert program.process.wait() == 2
    assert "BROKER_AUTH__ACCEPT_OPEN=true" in program.process.tail()
    told = stub(BROKER_HOST="0.0.0.0", BROKER_AUTH__ACCEPT_OPEN="true")
    told.wait_ready()
    assert "open_mode" in told.process.tail()
    assert "anybody who reaches 0.0.0.0" in told.process.tail()


def test_an_open_broker_says_so_loudly_on_loopback_too(stub: StartStub) -> None:
    program = stub()
    program.wait_ready()
    assert "open_mode" in program.process.tail()


def test_a_mistyped_variable_is_pointed_out(stub: StartStub) -> None:
    program = stub(BROKER_REDIS_ULR="redis://elsewhere")
    program.wait_ready()
    assert "BROKER_REDIS_ULR is not a setting; did you mean BROKER_REDIS_URL?" in program.process.tail()


def test_a_head_that_never_ends_costs_no_memory_and_gets_431(stub: StartStub) -> None:
    program = stub(BROKER_HTTP__MAX_HEADER_BYTES="2048")
    program.wait_ready()
    with socket.create_connection(("127.0.0.1", program.port), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
        connection.sendall(b"a" * 4096)
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert b"larger than 2048 bytes" in answer
        assert connection.recv(1) == b""


def test_a_whole_head_above_the_limit_gets_431(stub: StartStub) -> None:
    program = stub(BROKER_HTTP__MAX_HEADER_BYTES="2048")
    program.wait_ready()
    with socket.create_connection(("127.0.0.1", program.port), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 4096 + b"\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 431 ")


def test_a_large_body_is_not_taken_for_a_head(stub: StartStub) -> None:
    program = stub(BROKER_HTTP__MAX_HEADER_BYTES="2048")
    program.wait_ready()
    connection = program.connect()
    for _ in range(2):
        connection.request("POST", "/", b"b" * 100_000)
        response = connection.getresponse()
        assert response.status == 200
        response.read()
    connection.close()


def test_a_connection_that_sends_no_request_is_closed(stub: StartStub) -> None:
    program = stub(BROKER_HTTP__HEAD_SECONDS="0.2")
    program.wait_ready()
    with socket.create_connection(("127.0.0.1", program.port), timeout=10) as silent:
        assert silent.recv(1) == b""
    with socket.create_connection(("127.0.0.1", program.port), timeout=10) as slow:
        slow.sendall(b"GET / HT")
        assert slow.recv(1) == b""


def test_a_stream_outlives_the_time_that_a_head_may_take(stub: StartStub) -> None:
    """Some clients send a stray line break after a body: it must not start a clock that cuts the answer."""
    program = stub(BROKER_HTTP__HEAD_SECONDS="0.2")
    program.wait_ready()
    with socket.create_connection(("127.0.0.1", program.port), timeout=10) as connection:
        connection.sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n\r\n")
        received = b""
        while not received.endswith(b"1\r\nx\r\n"):
            received += connection.recv(4096)
        connection.settimeout(0.6)
        with pytest.raises(TimeoutError):
            connection.recv(1)
