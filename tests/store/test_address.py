"""The Redis URL: every shape is one value, and what is wrong with one is a sentence without its password."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import Misconfigured
from broker.store.address import FORMS, Access, Address, Login, Shape, Tls, parse

READ: dict[str, Address] = {
    "redis://localhost": Address(Shape.STANDALONE, (("localhost", 6379),)),
    "redis://": Address(Shape.STANDALONE, (("localhost", 6379),)),
    "REDIS://h:7/": Address(Shape.STANDALONE, (("h", 7),)),
    "redis://h:7/3": Address(Shape.STANDALONE, (("h", 7),), db=3),
    "redis://h?db=2": Address(Shape.STANDALONE, (("h", 6379),), db=2),
    "redis://[::1]:7/0": Address(Shape.STANDALONE, (("::1", 7),)),
    "redis://:p%40ss@h": Address(Shape.STANDALONE, (("h", 6379),), login=Login(None, "p@ss")),
    "redis://me:p:w@h": Address(Shape.STANDALONE, (("h", 6379),), login=Login("me", "p:w")),
    "rediss://h": Address(Shape.STANDALONE, (("h", 6379),), tls=Tls()),
    "rediss://h?ssl_ca_certs=/ca.pem&ssl_check_hostname=false": Address(
        Shape.STANDALONE, (("h", 6379),), tls=Tls("/ca.pem", is_hostname_checked=False)
    ),
    "rediss://h?ssl_certfile=/c.pem&ssl_keyfile=/k.pem&ssl_cert_reqs=none": Address(
        Shape.STANDALONE, (("h", 6379),), tls=Tls(None, "/c.pem", "/k.pem", is_verified=False)
    ),
    "unix:///run/redis.sock?db=1": Address(Shape.STANDALONE, socket="/run/redis.sock", db=1),
    "unix://me:pw@/run/a%20b.sock": Address(
        Shape.STANDALONE, socket="/run/a b.sock", login=Login("me", "pw")
    ),
    "redis+sentinel://me:pw@a:1,b,[fe80::1]:3/main/2": Address(
        Shape.SENTINEL,
        (("a", 1), ("b", 26379), ("fe80::1", 3)),
        service="main",
        db=2,
        login=Login("me", "pw"),
    ),
    "rediss+sentinel://a/main": Address(Shape.SENTINEL, (("a", 26379),), service="main", tls=Tls()),
    "redis+cluster://pw:x@a:7000,b:7001": Address(
        Shape.CLUSTER, (("a", 7000), ("b", 7001)), login=Login("pw", "x")
    ),
    "rediss+cluster://a/0": Address(Shape.CLUSTER, (("a", 6379),), tls=Tls()),
}


@pytest.mark.parametrize("url", READ)
def test_a_url_is_read(url: str) -> None:
    assert parse(url) == READ[url]


REFUSED = {
    "localhost:6379": "must begin with redis://",
    "http://u:geheim@h": "must begin with redis://",
    "redis+proxy://:geheim@h": "must begin with redis://",
    "redis://u:geheim@h:x": "host that cannot be read",
    "redis://u:geheim@h:70000": "port that is not from 1 to 65535",
    "redis://u:geheim@h:0": "port that is not from 1 to 65535",
    "redis://u:geheim@a,b": "several hosts",
    "redis://u:geheim@h/zero": "database that is no number",
    "redis://u:geheim@h/1/2": "too many parts",
    "redis://u:geheim@h/" + "9" * 5000: "database that is no number",
    "redis://u:geheim@h:" + "9" * 5000: "host that cannot be read",
    "redis://u:gehe/im@h": "cannot be read",
    "redis://u:gehe#im@h": "%23",
    "redis://u:gehe?im=1@h": "percent-encoded",
    "redis://u:geheim@h?socket_timeout=1": "options that are none of ours (socket_timeout)",
    "redis://u:geheim@h?nonsense": "NAME=VALUE",
    "redis://[::1": "host that cannot be read",
    "unix://run/redis.sock": "absolute path",
    "unix://": "absolute path",
    "redis+sentinel://u:geheim@a:1,b:2": "names no service",
    "redis+sentinel://a/main/x": "database that is no number",
    "redis+cluster://u:geheim@a/1": "has only 0",
    "redis://u:geheim@h?ssl_ca_certs=/ca.pem": "rediss for redis",
    "rediss://u:geheim@h?ssl_keyfile=/k.pem": "without its certificate",
    "rediss://u:geheim@h?ssl_check_hostname=perhaps": "true or false",
    "rediss://u:geheim@h?ssl_cert_reqs=optional": "required or none",
}


@pytest.mark.parametrize("url", REFUSED)
def test_a_wrong_url_is_a_sentence_with_the_right_form_and_no_password(url: str) -> None:
    with pytest.raises(Misconfigured) as refusal:
        parse(url)
    said = str(refusal.value)
    assert REFUSED[url] in said
    assert any(form in said for form in FORMS.values()) or "BROKER_REDIS__CERT_FILE" in said
    assert "gehe" not in said


SAFE = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60)


@given(SAFE, st.sampled_from(list(FORMS)))
def test_whatever_is_given_is_an_address_or_a_refusal(rest: str, scheme: str) -> None:
    try:
        address = parse(f"{scheme}://{rest}")
    except Misconfigured:
        return
    assert address.hosts or address.socket


@pytest.mark.parametrize("scheme", FORMS)
def test_the_form_that_is_shown_can_be_read(scheme: str) -> None:
    parse(FORMS[scheme])


def test_what_the_settings_say_goes_before_the_url() -> None:
    access = Access("you", "/pw", "watcher", "/spw", "/ca", "/cert", "/key")
    address = parse("rediss+sentinel://me:old@a/main?ssl_ca_certs=/other", access)
    assert address.login == Login("you", None, "/pw")
    assert address.sentinel_login == Login("watcher", None, "/spw")
    assert address.tls == Tls("/ca", "/cert", "/key")


@pytest.mark.parametrize(
    ("access", "why"),
    [(Access(ca_file="/ca"), "rediss for redis"), (Access(sentinel_username="x"), "without sentinels")],
)
def test_settings_that_do_not_fit_the_url_are_refused(access: Access, why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        parse("redis://h", access)


@pytest.mark.parametrize("url", READ)
def test_an_address_shows_no_password(url: str) -> None:
    address = parse(url)
    password = address.login.password
    for shown in (str(address), repr(address)):
        assert password is None or password not in shown.replace("password", "")
    assert "@" not in str(address)
