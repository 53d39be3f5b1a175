"""Settings: read once, refused with a sentence that names the variable, documented from one source."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker import settings
from broker.core.errors import Misconfigured
from broker.settings import load
from tests.process.conftest import ROOT, environment


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("BROKER_") or name == "REDIS_SERVER_BIN":
            monkeypatch.delenv(name)


def test_without_an_environment_the_broker_is_local_and_embedded() -> None:
    found = load()
    assert found.redis_url is None
    assert settings.is_loopback(found.host)
    assert not found.is_exposed
    found.check_exposure()


def test_variables_of_groups_have_two_underscores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_HTTP__RETRY_MS", "5")
    monkeypatch.setenv("BROKER_SESSION__MAX_URIS", "7")
    assert load().http.retry_ms == 5
    assert load().session.max_uris == 7
    assert load().http.backlog == 2048


def test_a_flag_overrules_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_HTTP__RETRY_MS", "5")
    monkeypatch.setenv("BROKER_HTTP__IDLE_SECONDS", "6")
    found = load({"http": {"retry_ms": "9"}})
    assert (found.http.retry_ms, found.http.idle_seconds) == (9, 6)


@pytest.mark.parametrize(
    "text", ["a.example,b.example", " a.example , b.example,", '["a.example", "b.example"]']
)
def test_lists_are_written_with_commas_or_as_json(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("BROKER_HTTP__ALLOWED_HOSTS", text)
    assert load().http.allowed_hosts == ("a.example", "b.example")


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_REDIS_URL", "")
    monkeypatch.setenv("BROKER_PORT", "")
    assert load().redis_url is None
    assert load().port == 8000


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("BROKER_PORT", "many", "BROKER_PORT=many will not do"),
        ("BROKER_PORT", "70000", "less than or equal to 65535"),
        ("BROKER_HTTP__RETRY_MS", "-1", "BROKER_HTTP__RETRY_MS=-1 will not do"),
        ("BROKER_AUTH__MODE", "closed", "BROKER_AUTH__MODE=closed will not do: input should be 'open'"),
        ("BROKER_AUTH__TENANT", "a\x1bb", "control characters"),
        ("BROKER_AUTH__HEADER", "bad header", "letters, digits"),
        ("BROKER_PREFIX", "a{b", "BROKER_PREFIX=a{b will not do"),
        ("BROKER_REDIS_URL", "localhost:6379", "must begin with redis://"),
        ("BROKER_LOG__LEVEL", "loud", "BROKER_LOG__LEVEL=loud will not do"),
        ("BROKER_PORT", "tcp://10.0.0.1:8000", "enableServiceLinks: false"),
        ("BROKER_HTTP__ALLOWED_HOSTS", "[broken", "BROKER_HTTP"),
        ("BROKER_HTTP", "nonsense", "BROKER_HTTP__RETRY_MS=1000"),
    ],
)
def test_a_wrong_value_is_a_sentence_that_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(Misconfigured) as refused:
        load()
    assert said in str(refused.value)
    assert "pydantic" not in str(refused.value)


def test_every_wrong_value_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_PORT", "x")
    monkeypatch.setenv("BROKER_LIST__PAGE_SIZE", "0")
    with pytest.raises(Misconfigured) as refused:
        load()
    assert len(str(refused.value).splitlines()) == 2


def test_a_password_in_a_url_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_REDIS_URL", "http://:secret@host")
    with pytest.raises(Misconfigured) as refused:
        load()
    assert "secret" not in str(refused.value)


def test_the_environment_of_kubernetes_is_only_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("BROKER_TENANT", "acme")
    load()
    assert [sentence.split(" ")[0] for sentence in settings.unknown()] == ["BROKER_SERVICE_HOST"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_is_known_in_all_its_spellings(host: str) -> None:
    assert settings.is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "broker.example"])
def test_openness_to_the_network_has_to_be_accepted(host: str) -> None:
    exposed = load({"host": host})
    with pytest.raises(Misconfigured, match="BROKER_AUTH__ACCEPT_OPEN=true"):
        exposed.check_exposure()
    load({"host": host, "auth": {"accept_open": "true"}}).check_exposure()


def test_a_setting_cannot_be_changed_once_read() -> None:
    found = load()
    with pytest.raises(ValueError, match="frozen"):
        found.port = 1  # type: ignore[misc] # that is what is tried


def test_the_state_directory_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert load().state_dir == tmp_path / "mcp-resource-broker"
    monkeypatch.setenv("BROKER_STATE_DIR", str(tmp_path / "other"))
    assert load().state_dir == tmp_path / "other"


def test_the_program_of_the_embedded_redis_has_a_name_without_our_prefix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDIS_SERVER_BIN", "/opt/redis-server")
    assert load().redis_server_bin == "/opt/redis-server"
    assert load({"redis_server_bin": "/flag"}).redis_server_bin == "/flag"


def test_every_setting_has_a_sentence_and_numbers_have_a_unit_or_are_ports() -> None:
    for variable, _, field in settings.variables():
        assert field.description, variable
        assert field.description.endswith("."), variable
        is_number = field.annotation is int or field.annotation is float
        if is_number and not variable.endswith("PORT"):
            assert settings.unit(field), variable


def test_the_documented_table_is_what_the_settings_say() -> None:
    script = ROOT / "scripts" / "configuration.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
