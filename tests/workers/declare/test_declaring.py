"""Declaring: what lists show comes from the function, and a mistake ends the import with both sides named."""

import datetime as dt
import functools
import json
import re
import uuid
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from broker.core.errors import BadRequest, InvalidContents, InvalidDeclaration, InvalidTemplate, InvalidUri
from workers import Context, Misconfigured, Worker
from workers.testing import TestClient


@pytest.fixture
def worker() -> Worker:
    return Worker("bookshop")


def _shown(worker: Worker) -> dict[str, Any]:
    [declared] = worker.declarations()
    return json.loads(declared.meta)


def _takes_nothing() -> str:
    return ""


def test_the_name_is_the_functions_and_the_description_its_docstring(worker: Worker) -> None:
    @worker.resource("config://app")
    def get_config() -> str:
        """The active shop configuration.

        In lines of key=value.
        """
        return "theme=dark"

    assert get_config() == "theme=dark", "the function stays what it is"
    assert _shown(worker) == {
        "uri": "config://app",
        "name": "get_config",
        "description": "The active shop configuration.\n\nIn lines of key=value.",
        "mimeType": "text/plain",
    }


def test_what_is_said_wins_over_what_the_function_says(worker: Worker) -> None:
    worker.resource(
        "config://app",
        name="config",
        title="Application Config",
        description="Application configuration data",
        mime_type="text/x-ini",
        annotations={"audience": ["user"], "priority": 0.5},
        icons=[{"src": "https://example.org/i.png"}],
        size=24,
        ttl=dt.timedelta(seconds=2),
        cache_scope="public",
        scopes=["config.read"],
    )(_takes_nothing)
    [declared] = worker.declarations()
    assert json.loads(declared.meta) == {
        "uri": "config://app",
        "name": "config",
        "title": "Application Config",
        "description": "Application configuration data",
        "mimeType": "text/x-ini",
        "annotations": {"audience": ["user"], "priority": 0.5},
        "icons": [{"src": "https://example.org/i.png"}],
        "size": 24,
    }
    assert (declared.ttl_ms, declared.cache_scope, declared.scopes) == (2000, "public", {"config.read"})
    assert not declared.is_template
    assert not declared.is_personal


def test_what_is_not_said_is_absent(worker: Worker) -> None:
    worker.resource("config://app", mime_type=None)(_takes_nothing)
    [declared] = worker.declarations()
    assert json.loads(declared.meta) == {"uri": "config://app", "name": "_takes_nothing"}
    assert (declared.ttl_ms, declared.cache_scope, declared.scopes) == (None, None, frozenset())


def test_a_placeholder_makes_a_template(worker: Worker) -> None:
    @worker.resource("users://{user_id}/profile")
    def get_user_profile(user_id: str) -> str:
        """A customer's profile."""
        return user_id

    assert _shown(worker) == {
        "uriTemplate": "users://{user_id}/profile",
        "name": "get_user_profile",
        "description": "A customer's profile.",
        "mimeType": "text/plain",
    }
    assert worker.declarations()[0].is_template


def test_a_mismatch_of_names_names_both_sides(worker: Worker) -> None:
    def get_user_profile(user: str) -> str:
        return user

    said = (
        "'users://{user_id}/profile' has the variables {user_id}, but the function get_user_profile takes "
        "the parameters {user}; both must have the same names."
    )
    with pytest.raises(InvalidDeclaration, match=re.escape(said)):
        worker.resource("users://{user_id}/profile")(get_user_profile)
    assert worker.declarations() == []


def _missing(a: str) -> str:
    return a


def _more(a: str, b: str, c: str) -> str:
    return a + b + c


def _no_default(a: str, b: str) -> str:
    return a + b


def _anything(**values: str) -> str:
    return str(values)


def _by_place(a: str, b: str, /) -> str:
    return a + b


def _two_contexts(a: str, b: str, one: Context, other: Context) -> str:
    return a + b + str((one, other))


def _unknown_annotation(a: str, b: str) -> str:
    return a + b


_unknown_annotation.__annotations__["a"] = "ImportedForTypeCheckersOnly"


def _list_for_text(a: list[str], b: str) -> str:
    return str(a) + b


def _view_of_text(a: memoryview, b: str = "") -> str:
    return str(a) + b


_nameless: Callable[[str], str] = lambda a: a  # noqa: E731 # a function without a name is the point

MISFITS: list[tuple[str, Callable[..., str], str]] = [
    ("x://{a}/{b}", _missing, "both must have the same names"),
    ("x://{a}/{b}", _more, "both must have the same names"),
    ("x://y", _missing, "has the variables {}, but the function _missing takes the parameters {a}"),
    ("x://{a}{?b}", _no_default, "the parameter b of _no_default has no default"),
    ("x://{a}?x=1{&b}", _no_default, "may be read without {&b}"),
    ("x://{a}/{b}", _anything, "cannot be given by name"),
    ("x://{a}/{b}", _by_place, "cannot be given by name"),
    ("x://{a}/{b}", _two_contexts, "takes the Context twice, as one and other"),
    ("x://{a}/{b}", _unknown_annotation, "import what they name at run time"),
    ("x://{a}/{b}", _list_for_text, "The variable a is one text, but the parameter a of _list_for_text"),
    ("x://{b}{/a*}", _no_default, "The variable a is a list, but the parameter a of _no_default"),
    ("x://{a}{?b}", _view_of_text, "to which no text converts"),
    ("x://{a}", _nameless, "has no name of its own; declare it with name"),
]


@pytest.mark.parametrize(("uri", "function", "why"), MISFITS)
def test_a_function_that_does_not_fit_is_refused_at_import(
    worker: Worker, uri: str, function: Callable[..., str], why: str
) -> None:
    with pytest.raises(InvalidDeclaration, match=re.escape(why)):
        worker.resource(uri)(function)
    assert worker.declarations() == []


@pytest.mark.parametrize(
    ("uri", "said", "error"),
    [
        ("x://{a", {}, InvalidTemplate),
        ("no scheme", {}, InvalidUri),
        ("x://y", {"mime_type": " "}, InvalidContents),
        ("x://y", {"annotations": {"priority": 2}}, InvalidContents),
        ("x://y", {"scopes": ["a b"]}, InvalidContents),
        ("x://y", {"ttl": -1}, InvalidDeclaration),
        ("x://y", {"ttl": float("nan")}, InvalidDeclaration),
        ("x://y", {"exempt": ["path"]}, InvalidDeclaration),
        ("x://y", {"list": _takes_nothing}, InvalidDeclaration),
        ("x://{+a}", {"size": 3}, InvalidDeclaration),
    ],
)
def test_a_description_that_cannot_be_is_refused_at_import(
    worker: Worker, uri: str, said: dict[str, Any], error: type[BadRequest]
) -> None:
    with pytest.raises(error):
        worker.resource(uri, **said)(_missing if "{" in uri else _takes_nothing)
    assert worker.declarations() == []


def test_a_uri_is_declared_once_unless_it_is_replaced(worker: Worker) -> None:
    worker.resource("x://y", title="one")(_takes_nothing)
    with pytest.raises(InvalidDeclaration, match="declared already"):
        worker.resource("x://y", title="two")(_takes_nothing)
    assert _shown(worker)["title"] == "one"
    worker.resource("x://y", title="two", replace=True)(_takes_nothing)
    assert _shown(worker)["title"] == "two"


class Color(Enum):
    RED = "red"
    ONE = 1


@pytest.mark.parametrize(
    ("annotation", "raw", "value"),
    [
        (int, "12345", 12345),
        (float, "2.5", 2.5),
        (bool, "true", True),
        (str, "07", "07"),
        (Any, "07", "07"),
        (Color, "red", Color.RED),
        (Color, "1", Color.ONE),
        (Literal["a", "b"], "b", "b"),
        (Literal[1, 2], "2", 2),
        (int | None, "3", 3),
        (Annotated[int, Field(ge=1)], "3", 3),
    ],
)
async def test_a_value_is_converted_to_the_parameters_type(
    worker: Worker, annotation: Any, raw: str, value: object
) -> None:
    seen: list[object] = []

    def get(a: Any) -> str:
        seen.append(a)
        return "ok"

    get.__annotations__["a"] = annotation
    worker.resource("x://{a}")(get)
    await TestClient(worker).read(f"x://{raw}")
    assert seen == [value]
    assert type(seen[0]) is type(value)


async def test_types_of_the_standard_library_are_converted(worker: Worker) -> None:
    seen: list[object] = []

    @worker.resource("x://{key}/{day}{/parts*}{?at}")
    def get(key: uuid.UUID, day: dt.date, parts: list[int], at: dt.time = dt.time(0)) -> str:
        seen.extend([key, day, parts, at])
        return "ok"

    await TestClient(worker).read("x://12345678123456781234567812345678/2026-11-30/1/2?at=12:30")
    assert seen == [
        uuid.UUID("12345678123456781234567812345678"),
        dt.date(2026, 11, 30),
        [1, 2],
        dt.time(12, 30),
    ]


def test_whatever_can_be_called_can_be_a_resource(worker: Worker) -> None:
    class Shop:
        def __init__(self) -> None:
            self.books = 3

        def count(self, shelf: str) -> str:
            """Books on a shelf."""
            return f"{shelf}: {self.books}"

        async def __call__(self, shelf: str) -> str:
            return self.count(shelf)

    worker.resource("a://{shelf}")(Shop().count)
    worker.resource("b://{shelf}")(functools.partial(Shop.count, Shop()))
    worker.resource("c://{shelf}", name="shop")(Shop())
    shown = [json.loads(each.meta) for each in worker.declarations()]
    assert [(each["name"], each.get("description")) for each in shown] == [
        ("count", "Books on a shelf."),
        ("count", "Books on a shelf."),
        ("shop", None),
    ]


@pytest.mark.parametrize("annotation", [Context, Context | None, Annotated[Context, "injected"], "Context"])
def test_a_context_is_no_parameter_and_makes_a_resource_personal(worker: Worker, annotation: Any) -> None:
    def get(a: str, ctx: Any) -> str:
        return a + str(ctx)

    get.__annotations__["ctx"] = annotation
    worker.resource("x://{a}")(get)
    [declared] = worker.declarations()
    assert declared.is_personal
    assert declared.cache_scope == "private"


def test_the_author_may_say_that_a_context_makes_no_difference(worker: Worker) -> None:
    def get(ctx: Context) -> str:
        return str(ctx)

    with pytest.raises(InvalidDeclaration, match="unless you say personal=False"):
        worker.resource("x://y", cache_scope="public")(get)
    worker.resource("x://y", cache_scope="public", personal=False)(get)
    assert not worker.declarations()[0].is_personal


def test_a_worker_serves_the_tenants_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Worker("w").tenants == ("default",)
    monkeypatch.setenv("BROKER_TENANT", "acme")
    assert Worker("w").tenants == ("acme",)
    assert Worker("w", tenant="t").tenants == ("t",)
    assert Worker("w", tenants=["a", "b", "a"]).tenants == ("a", "b")
    with pytest.raises(InvalidDeclaration, match="give one of the two"):
        Worker("w", tenant="a", tenants=["b"])
    with pytest.raises(InvalidDeclaration, match="at least one tenant"):
        Worker("w", tenants=[])
    for name in ("", "x" * 65, "a\nb"):
        with pytest.raises(Misconfigured, match="1 to 64 printable"):
            Worker(name)
