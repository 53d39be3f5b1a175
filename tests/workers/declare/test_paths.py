"""No file outside the folder is ever read, however the name is written, and a refusal tells nothing."""

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers import NotFound, Worker, safe_file, safe_join
from workers.paths import refusal
from workers.testing import TestClient

ATTACKS = [
    "..",
    "../secret",
    "a/../b",
    "a/../../secret",
    "a/..",
    "/etc/passwd",
    "//etc/passwd",
    "C:\\Windows",
    "C:secret",
    "c:/secret",
    "\\\\server\\share",
    "..\\secret",
    "a\\b",
    "a\0b",
    "\0",
    ".",
    "./a",
    "a//b",
    "a/",
]


def _encodings(value: str) -> list[str]:
    """Return the ways to write `value` into a URI: as little encoded as possible, fully, twice, and mixed."""
    fully = "".join(f"%{byte:02X}" for byte in value.encode())
    plain = quote(value, safe="/:")
    encodings = [plain, quote(value, safe=""), fully, fully.lower()]
    for _ in range(4):
        encodings.append(quote(encodings[-1], safe=""))
    return encodings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    (root / "sub").mkdir(parents=True)
    (root / "a").write_text("inside")
    (root / "sub" / "b..c").write_text("inside")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "docs-private").mkdir()
    (tmp_path / "docs-private" / "secret").write_text("secret")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "sub" / "up").symlink_to(tmp_path)
    (root / "absolute").symlink_to("/etc/passwd")
    (root / "alias").symlink_to(root / "a")
    (root / "loop").symlink_to(root / "loop")
    (root / "dangling").symlink_to(root / "nothing")
    return root


@pytest.mark.parametrize(
    "template", ["docs://{+path}", "docs://{path}", "docs://x{/path*}", "docs://x{?path}"]
)
@pytest.mark.parametrize("attack", ATTACKS, ids=ascii)
async def test_an_unsafe_path_is_an_unknown_resource_however_it_is_encoded(
    template: str, attack: str
) -> None:
    runs: list[object] = []
    worker = Worker("docs")

    def read_one(path: str = "") -> str:
        runs.append(path)
        return "read"

    def read_many(path: list[str]) -> str:
        runs.extend(path)
        return "read"

    worker.resource(template)(read_many if "*" in template else read_one)
    client = TestClient(worker)
    start = template.partition("{")[0] + {"{/": "/", "{?": "?path="}.get(
        template[template.index("{") :][:2], ""
    )
    messages: set[str] = set()
    for raw in _encodings(attack):
        uri = start + raw
        if template.startswith("docs://x{?") and refusal(attack, is_path=False) is None:
            continue
        try:
            await client.read(uri)
        except NotFound as error:
            messages.add(str(error).replace(repr(uri), "it"))
    if "*" in template:
        # Split at its slashes, what was a path of many segments is a list of harmless names at times.
        assert not any(refusal(str(each)) for each in runs)
    else:
        assert runs == []
    assert messages <= {"There is no resource it."}


@pytest.mark.parametrize(
    "path",
    ["a", "a/b", "a..b", "v1.0..v2.0", "HEAD~3..HEAD", "...", ".hidden", "a b", "é", "a%", "100%25", "12:30"],
)
async def test_a_plain_relative_path_reaches_the_function(path: str) -> None:
    worker = Worker("docs")

    @worker.resource("docs://{+path}")
    def read(path: str) -> str:
        return path

    client = TestClient(worker)
    assert (await client.read("docs://" + quote(path)))[0].text == read(path)


async def test_a_query_may_hold_what_no_path_may_but_no_traversal() -> None:
    worker = Worker("docs")

    @worker.resource("docs://search{?q}")
    def search(q: str = "") -> str:
        return q

    client = TestClient(worker)
    for q in ("https://example.org//a", "", ".", "a/"):
        assert (await client.read("docs://search?q=" + quote(q)))[0].text == search(q)
    for q in ("../a", "/etc/passwd", "a\\b", "C:x"):
        with pytest.raises(NotFound):
            await client.read("docs://search?q=" + quote(q))


async def test_one_parameter_can_be_exempted_and_the_others_stay_safe() -> None:
    worker = Worker("imports")

    @worker.resource("imports://{kind}/{+source}", exempt={"source"})
    def preview(kind: str, source: str) -> str:
        return f"{kind} {source}"

    client = TestClient(worker)
    assert (await client.read("imports://csv//etc/../x"))[0].text == preview("csv", "/etc/../x")
    with pytest.raises(NotFound):
        await client.read("imports://../x")


async def test_a_resource_or_a_whole_worker_can_be_exempted() -> None:
    worker = Worker("imports", safe=False)

    def preview(source: str) -> str:
        return source

    worker.resource("relaxed://{+source}")(preview)
    worker.resource("strict://{+source}", safe=True)(preview)
    client = TestClient(worker)
    assert (await client.read("relaxed://../x"))[0].text == "../x"
    with pytest.raises(NotFound):
        await client.read("strict://../x")


async def test_a_refused_path_does_not_reach_a_more_permissive_template() -> None:
    worker = Worker("docs")

    def read(path: str) -> str:
        return path

    worker.resource("docs://files/{+path}")(read)
    worker.resource("docs://{+path}", safe=False)(read)
    with pytest.raises(NotFound):
        await TestClient(worker).read("docs://files/../x")


async def test_the_operator_hears_of_a_refused_path(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker("docs")

    @worker.resource("docs://{+path}")
    def read(path: str) -> str:
        return path

    with pytest.raises(NotFound):
        await TestClient(worker).read("docs://../" + read("x"))
    [record] = caplog.records
    assert record.message == "path_refused"
    assert vars(record)["why"] == "it has a .. segment"


@given(st.text(st.sampled_from("./\\%25eE2fF:cC\0a"), max_size=16))
def test_what_is_not_refused_stays_inside_even_if_it_is_decoded_once_more(value: str) -> None:
    from urllib.parse import unquote  # noqa: PLC0415 # the careless author's

    if refusal(value) is not None:
        return
    for path in (value, unquote(value)):
        joined = Path("/root/docs") / path
        assert ".." not in joined.parts
        assert joined.is_relative_to("/root/docs")
        assert "\0" not in path


def test_safe_join_gives_the_real_path_of_what_is_inside(root: Path) -> None:
    assert safe_join(root, "a") == root / "a"
    assert safe_join(str(root), "sub", "b..c") == root / "sub" / "b..c"
    assert safe_join(root, "sub/../a") == root / "a"
    assert safe_join(root, "alias") == root / "a"
    assert safe_join(root, "sub") == root / "sub"
    assert safe_join(root) == root


@pytest.mark.parametrize(
    "name",
    [
        *ATTACKS[:1],
        "../secret",
        "../docs-private/secret",
        "sub/../../secret",
        "/etc/passwd",
        "C:a",
        "\\a",
        "a\0",
        "out",
        "absolute",
        "sub/up/secret",
        "sub/up/docs/../secret",
        "loop",
        "dangling",
        "missing",
        "a/b",
        "x" * 5000,
        "\ud800",
    ],
)
def test_safe_join_refuses_what_leaves_the_root_or_is_not_there(root: Path, name: str) -> None:
    with pytest.raises(NotFound) as caught:
        safe_join(root, name)
    assert str(caught.value) == "There is no such file."


def test_safe_file_is_for_files_only(root: Path) -> None:
    assert safe_file(root, "alias").read_text() == "inside"
    for name in ("sub", "out", "missing"):
        with pytest.raises(NotFound):
            safe_file(root, name)


def test_a_root_that_does_not_exist_is_the_operators_mistake(root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        safe_join(root / "nowhere", "a")


async def test_a_folder_behind_a_link_is_a_fine_root(root: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(root)
    worker = Worker("docs")

    @worker.resource("docs://{+path}")
    def read(path: str) -> str:
        return safe_file(tmp_path / "current", path).read_text()

    client = TestClient(worker)
    assert (await client.read("docs://a"))[0].text == read("a")
    for name in ("out", "sub/up/secret", "missing", "sub"):
        with pytest.raises(NotFound, match="There is no resource"):
            await client.read(f"docs://{name}")
