"""The guide's pages, run as they stand: every block, and every answer that the page shows.

The Python blocks of a page are one program. A json block after one is the value of its last expression, a
text block the sentence of the error that it raises. Test functions in a page are run as well.
"""

import ast
import inspect
import json
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import BrokerError
from broker.core.publication import encode_contents
from tests.support.wait import within
from workers import Contents

GUIDE = Path(__file__).parents[3] / "docs" / "guide"
PAGES = ["serving", "templates", "files", "testing"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _wire(value: Any) -> Any:
    """Return `value` as a page shows it: contents as a client reads them, everything else as JSON."""
    if isinstance(value, list) and value and all(isinstance(each, Contents) for each in value):  # pyright: ignore[reportUnknownVariableType] # a page's value may be anything
        uri = str(value[0].uri)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        return json.loads(encode_contents(uri, value, None)[0])
    if isinstance(value, list):
        return [_wire(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return json.loads(json.dumps(value))


async def _run(source: str, name: str, line: int, scope: dict[str, Any]) -> Any:
    """Run a block, which may await, and return the value of its last expression."""
    tree = ast.parse("\n" * line + source, name)
    last = tree.body[-1]
    if isinstance(last, ast.Expr):
        tree.body[-1] = ast.copy_location(
            ast.Assign([ast.copy_location(ast.Name("_", ast.Store()), last)], last.value), last
        )
    code = compile(tree, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    scope.pop("_", None)
    done = types.FunctionType(code, scope)()
    if inspect.isawaitable(done):
        await done
    return scope.get("_")


def _blocks(text: str) -> Iterator[tuple[int, str, tuple[str, str] | None]]:
    """Yield each Python block with its line, and the block that says what comes of it."""
    found = list(BLOCK.finditer(text))
    for i, block in enumerate(found):
        follows = found[i + 1] if i + 1 < len(found) else None
        shown = (follows[1], follows[2]) if follows and follows[1] in ("json", "text") else None
        if block[1] == "python":
            yield text.count("\n", 0, block.start(2)), block[2], shown


async def _run_page(page: str) -> tuple[dict[str, Any], int]:
    """Run a page, and return what it defines and how many of its answers were compared."""
    path = GUIDE / f"{page}.md"
    scope: dict[str, Any] = {"__name__": page}
    compared = 0
    for line, source, shown in _blocks(path.read_text()):
        if shown is not None and shown[0] == "text":
            with pytest.raises(BrokerError) as caught:
                await _run(source, str(path), line, scope)
            assert str(caught.value) == shown[1].strip()
        else:
            value = await _run(source, str(path), line, scope)
            if shown is not None:
                assert _wire(value) == json.loads(shown[1])
        compared += shown is not None
    return scope, compared


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the working folder of somebody who tries the page about files."""
    docs = tmp_path / "docs"
    (docs / "sub").mkdir(parents=True)
    (docs / "intro.md").write_text("# Welcome")
    (tmp_path / "secret.md").write_text("secret")
    (docs / "link-to-secret.md").symlink_to(tmp_path / "secret.md")
    (docs / "folder-outside").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    return docs


@pytest.mark.parametrize(("page", "answers"), [("serving", 6), ("templates", 8), ("files", 4)])
async def test_a_page_says_what_is_so(page: str, answers: int, folder: Path) -> None:
    _, compared = await _run_page(page)
    assert compared == answers


async def test_the_tests_on_the_page_about_testing_pass(caplog: pytest.LogCaptureFixture) -> None:
    scope, _ = await _run_page("testing")
    tests = {name: test for name, test in scope.items() if name.startswith("test_")}
    assert len(tests) == 4
    for name, test in tests.items():
        await within(test(), name, 60)
    assert "KeyError" in caplog.text


async def test_a_failing_order_is_what_the_page_about_serving_says() -> None:
    scope, _ = await _run_page("serving")
    from workers import BadRequest, NotFound  # noqa: PLC0415 # after the page, whose names they are
    from workers.testing import CallFailed  # noqa: PLC0415

    for uri, error in (("orders://-1", BadRequest), ("orders://9", NotFound), ("orders://3", CallFailed)):
        with pytest.raises(error):
            await scope["client"].read(uri)
    assert (await scope["client"].read("orders://2"))[0].text == "order 2"


def test_no_page_is_left_out_and_every_link_leads_somewhere() -> None:
    assert {path.stem for path in GUIDE.glob("*.md")} >= set(PAGES)
    for page in PAGES:
        text = (GUIDE / f"{page}.md").read_text()
        links = re.findall(r"\]\(([^)#:]+)\)", text)
        assert [link for link in links if not (GUIDE / link).exists()] == []
