"""Where Redis is and how we get in: one URL, and what the settings say beside it, as a value.

Pure: it opens no file and no connection. Rules:

1. This is the only reader of the URL; what the client library would guess from one is never used.
2. No message and no `repr` shows a password, or any other part of a URL that may hold one.
3. A password file's *name* travels here, never its contents: it is read for each new connection, which is
   how a password is rotated without a restart (store/login.py).
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import parse_qsl, unquote

from broker.core.errors import Misconfigured

REDIS_PORT = 6379
SENTINEL_PORT = 26379
MAX_PORT = 65_535

FORMS = {
    "redis": "redis://HOST:6379/0",
    "rediss": "rediss://HOST:6379/0",
    "unix": "unix:///PATH/TO/SOCKET",
    "redis+sentinel": "redis+sentinel://HOST1:26379,HOST2:26379/SERVICE",
    "rediss+sentinel": "rediss+sentinel://HOST1:26379,HOST2:26379/SERVICE",
    "redis+cluster": "redis+cluster://HOST1:7000,HOST2:7001",
    "rediss+cluster": "rediss+cluster://HOST1:7000,HOST2:7001",
}
"""Scheme → how such a URL looks. The s is for TLS."""

_OPTIONS = ("db", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname", "ssl_cert_reqs")
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<name>[^\[\]:\s]+))(?::(?P<port>[0-9]{0,9}))?")
_NUMBER = re.compile(r"[0-9]{1,9}")

Host = tuple[str, int]


class Shape(enum.Enum):
    """What answers at the address."""

    STANDALONE = "standalone"
    SENTINEL = "sentinel"
    """Sentinels, which know where the primary is."""
    CLUSTER = "cluster"
    """Some nodes of a Redis Cluster, which know all the others."""


@dataclass(frozen=True, slots=True)
class Login:
    """Who we say to be. `password_file` is read for each connection, and goes before `password`."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None


@dataclass(frozen=True, slots=True)
class Tls:
    """How the server's certificate is checked, and which one we show. Names of PEM files.

    Without `ca_file` the system's authorities are trusted.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    is_verified: bool = True
    is_hostname_checked: bool = True


@dataclass(frozen=True, slots=True)
class Access:
    """What the settings say beside the URL; where both say something, the settings win."""

    username: str | None = None
    password_file: str | None = None
    sentinel_username: str | None = None
    sentinel_password_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


NO_ACCESS = Access()
"""Nothing is said beside the URL."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where Redis is, and how we get in.

    `hosts` are the server itself, sentinels, or nodes to begin with; empty for a unix `socket`. `service` is
    what the sentinels call the primary. `tls` is None for plain connections, and is the same for sentinels.
    """

    shape: Shape
    hosts: tuple[Host, ...] = ()
    socket: str | None = None
    service: str = ""
    db: int = 0
    login: Login = Login()
    sentinel_login: Login = Login()
    tls: Tls | None = None

    def __str__(self) -> str:
        """Return the URL without anything secret in it, for people."""
        if self.socket is not None:
            return f"unix://{self.socket}"
        scheme = "rediss" if self.tls is not None else "redis"
        hosts = ",".join(shown(host) for host in self.hosts)
        match self.shape:
            case Shape.STANDALONE:
                return f"{scheme}://{hosts}/{self.db}"
            case Shape.SENTINEL:
                return f"{scheme}+sentinel://{hosts}/{self.service}"
            case Shape.CLUSTER:
                return f"{scheme}+cluster://{hosts}"


def shape(url: str) -> Shape:
    """Return the shape of the installation at `url`, which may still be refused for something else."""
    return _shape(url.partition("://")[0].lower())[0]


def shown(host: Host) -> str:
    """Return host and port as a URL has them."""
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def parse(url: str, access: Access = NO_ACCESS) -> Address:
    """Read a URL, and what the settings say beside it.

    Raises:
        Misconfigured: with what is wrong, and how such a URL looks; never with a password.
    """
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme not in FORMS:
        raise Misconfigured(
            "The Redis URL must begin with redis://, rediss:// or unix://, or with redis+sentinel:// or "
            f"redis+cluster://, rediss+… with TLS, as in {FORMS['redis']} or {FORMS['redis+sentinel']}."
        )
    # By hand: the library's splitter refuses several hosts in brackets, from some release on.
    place, path, query = _parted(scheme, url.partition("://")[2])
    options = _options(scheme, query)
    userinfo, _, places = place.rpartition("@")
    login = _login(userinfo, access)
    tls = _tls(scheme, options, access)
    if scheme == "unix":
        return _at_socket(places, path, options, login)
    shape, port = _shape(scheme)
    hosts = _hosts(scheme, places, port)
    service, db = _path(scheme, shape, path, options)
    _check_sentinel(shape, access)
    return Address(
        shape,
        hosts,
        service=service,
        db=db,
        login=login,
        sentinel_login=Login(access.sentinel_username, None, access.sentinel_password_file),
        tls=tls,
    )


def _refuse(scheme: str, why: str) -> NoReturn:
    raise Misconfigured(f"The Redis URL {why}; such a URL looks like {FORMS[scheme]}.")


def _shape(scheme: str) -> tuple[Shape, int]:
    match scheme.partition("+")[2]:
        case "sentinel":
            return Shape.SENTINEL, SENTINEL_PORT
        case "cluster":
            return Shape.CLUSTER, REDIS_PORT
        case _:
            return Shape.STANDALONE, REDIS_PORT


def _login(userinfo: str, access: Access) -> Login:
    name, _, password = userinfo.partition(":")
    return Login(
        access.username or unquote(name) or None,
        # The file is the newer word: a URL's password stays as it was when the process started.
        None if access.password_file else unquote(password) or None,
        access.password_file,
    )


def _hosts(scheme: str, places: str, default_port: int) -> tuple[Host, ...]:
    found = tuple(_host(scheme, place, default_port) for place in places.split(",") if place)
    if not found:
        # As `redis:///1` has always meant.
        return (("localhost", default_port),)
    if len(found) > 1 and "+" not in scheme:
        _refuse(scheme, "names several hosts, which only redis+sentinel:// and redis+cluster:// do")
    return found


def _host(scheme: str, place: str, default_port: int) -> Host:
    # The place itself may be part of a password with an @ or / that is not encoded, so it is not shown.
    matched = _HOST.fullmatch(place)
    if matched is None:
        _refuse(
            scheme,
            "has a host that cannot be read; special characters of a password are percent-encoded",
        )
    port = int(matched["port"] or default_port)
    if not 0 < port <= MAX_PORT:
        _refuse(scheme, f"has a port that is not from 1 to {MAX_PORT}")
    return matched["v6"] or unquote(matched["name"]), port


def _path(scheme: str, shape: Shape, path: str, options: Mapping[str, str]) -> tuple[str, int]:
    """Return the service and the database."""
    parts = [unquote(part) for part in path.split("/") if part]
    service = ""
    if shape is Shape.SENTINEL:
        if not parts:
            _refuse(scheme, "names no service: what the sentinels call the primary, often mymaster")
        service = parts.pop(0)
    if len(parts) > 1:
        _refuse(scheme, "has too many parts in its path")
    db = _database(scheme, options.get("db", parts[0] if parts else "0"))
    if shape is Shape.CLUSTER and db != 0:
        _refuse(scheme, "names a database, and a Redis Cluster has only 0")
    return service, db


def _database(scheme: str, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        _refuse(scheme, "has a database that is no number, as in /0")
    return int(text)


def _at_socket(host: str, path: str, options: Mapping[str, str], login: Login) -> Address:
    if host or not path.strip("/"):
        _refuse("unix", "has no absolute path after its slashes")
    db = _database("unix", options.get("db", "0"))
    return Address(Shape.STANDALONE, socket=unquote(path), db=db, login=login)


def _parted(scheme: str, rest: str) -> tuple[str, str, str]:
    """Return what stands before the path, the path, and the query."""
    if "#" in rest:
        _refuse(scheme, "has a # that is not written as %23")
    before, _, query = rest.partition("?")
    if "@" in query:
        _refuse(scheme, "has a ? before its @; special characters of a password are percent-encoded")
    place, slash, path = before.partition("/")
    return place, slash + path, query


def _options(scheme: str, query: str) -> Mapping[str, str]:
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True)) if query else {}
    except ValueError:
        _refuse(scheme, "has something after its ? that is not NAME=VALUE")
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        _refuse(
            scheme,
            f"has options that are none of ours ({', '.join(unknown)}); there are {', '.join(_OPTIONS)}",
        )
    return options


def _tls(scheme: str, options: Mapping[str, str], access: Access) -> Tls | None:
    tls = Tls(
        access.ca_file or options.get("ssl_ca_certs") or None,
        access.cert_file or options.get("ssl_certfile") or None,
        access.key_file or options.get("ssl_keyfile") or None,
        _is_verified(scheme, options.get("ssl_cert_reqs", "required")),
        _truth(scheme, options.get("ssl_check_hostname", "true")),
    )
    if not scheme.startswith("rediss"):
        if tls != Tls():
            raise Misconfigured(
                f"Certificates are given for a connection without TLS: write rediss for redis, as in "
                f"{FORMS.get('rediss' + scheme.removeprefix('redis'), FORMS['rediss'])}."
            )
        return None
    if tls.key_file and not tls.cert_file:
        raise Misconfigured("A key is given without its certificate: set BROKER_REDIS__CERT_FILE, too.")
    return tls


def _is_verified(scheme: str, text: str) -> bool:
    if text not in {"required", "none"}:
        _refuse(scheme, "has ssl_cert_reqs, which is required or none")
    return text == "required"


def _truth(scheme: str, text: str) -> bool:
    if text.lower() not in _TRUTHS:
        _refuse(scheme, "has ssl_check_hostname, which is true or false")
    return _TRUTHS[text.lower()]


def _check_sentinel(shape: Shape, access: Access) -> None:
    if shape is not Shape.SENTINEL and (access.sentinel_username or access.sentinel_password_file):
        raise Misconfigured(
            "Sentinels' credentials are given for a Redis without sentinels: unset BROKER_REDIS__SENTINEL_…, "
            f"or give the sentinels' addresses, as in {FORMS['redis+sentinel']}."
        )
