"""Templates match what they expand to, in bounded time, and decode once (field reports 70, 71, 74, 76)."""

import itertools
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.errors import InvalidTemplate, InvalidUri
from broker.core.uri_template import (
    MAX_MATCHED,
    BadValue,
    UriTemplate,
    Values,
    encode_once,
    find,
    is_template,
)


def match(template: str, uri: str) -> Values | BadValue | None:
    return UriTemplate.parse(template).match(uri)


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("users://{user_id}/profile", "users://42/profile", {"user_id": "42"}),
        ("books://{isbn}", "books://978-0441172719", {"isbn": "978-0441172719"}),
        ("books://{isbn}", "books://978/extra", None),
        ("manuals://{+path}", "manuals://returns.md", {"path": "returns.md"}),
        ("manuals://{+path}", "manuals://printing/setup.md", {"path": "printing/setup.md"}),
        ("manuals://{+path}{.ext}", "manuals://a/b.c/d.md", {"path": "a/b.c/d", "ext": "md"}),
        ("manuals://{+path}/{ext}", "manuals://a/b/c", {"path": "a/b", "ext": "c"}),
        ("data://file{.ext}", "data://file.json", {"ext": "json"}),
        ("data://file{.ext}", "data://file.tar.gz", {"ext": "tar.gz"}),
        ("api://x{/version}", "api://x/v2", {"version": "v2"}),
        ("api://x{/version,part}", "api://x/v2/p", {"version": "v2", "part": "p"}),
        ("map://{x,y}", "map://1,2", {"x": "1", "y": "2"}),
        ("shelves://browse{/path*}", "shelves://browse/fiction/sci-fi", {"path": ["fiction", "sci-fi"]}),
        ("shelves://browse{/path*}", "shelves://browse", {"path": []}),
        ("shelves://browse{/path*}", "shelves://browsefiction", None),
        ("shelves://browse{/path*}", "shelves://browse//x", None),
        ("git://{owner}{/path*}", "git://me/a/b", {"owner": "me", "path": ["a", "b"]}),
        ("git://{owner}{/path*}/end", "git://me/a/b/end", {"owner": "me", "path": ["a", "b"]}),
        ("git://{owner}{/path*}", "git://me", {"owner": "me", "path": []}),
        ("git://{owner}/x/{+path}", "git://me/x/a/b", {"owner": "me", "path": "a/b"}),
        ("git://{owner}/x/{+path}", "git://me/y/a/b", None),
        ("git://{owner}/x/{+path}", "git:///x/a/b", None),
        ("notes://{+path}{#section}", "notes://a/b#c#d", {"path": "a/b", "section": "c#d"}),
        ("notes://{+path}{#section}", "notes://a/b", None),
        ("notes://{path}", "notes://a#b", None),
        ("pkg://{name}-{version}", "pkg://a-b-1", {"name": "a-b", "version": "1"}),
    ],
)
def test_each_operator_gives_what_its_reference_says(template: str, uri: str, values: Values | None) -> None:
    assert match(template, uri) == values


@pytest.mark.parametrize(
    ("uri", "values"),
    [
        ("reviews://978", {"isbn": "978"}),
        ("reviews://978?sort=top", {"isbn": "978", "sort": "top"}),
        ("reviews://978?sort=top&limit=5", {"isbn": "978", "sort": "top", "limit": "5"}),
        ("reviews://978?utm=x&limit=5&limit=6", {"isbn": "978", "limit": "5"}),
        ("reviews://978?limit", {"isbn": "978", "limit": ""}),
        ("reviews://978?%6Cimit=5", {"isbn": "978"}),
        ("reviews://978?limit=a%26b", {"isbn": "978", "limit": "a&b"}),
        ("reviews://978?limit=5#x", None),
        ("reviews://?limit=5", None),
    ],
)
def test_a_query_may_be_partial_reordered_and_longer(uri: str, values: Values | None) -> None:
    assert match("reviews://{isbn}{?limit,sort}", uri) == values


def test_a_query_in_the_text_is_fixed_and_can_be_continued() -> None:
    assert match("find://x?q={q}", "find://x?q=a") == {"q": "a"}
    assert match("find://x?q={q}", "find://x?q=a&b=1") is None
    assert match("find://x?q={q}{&lang}", "find://x?q=a&b=1&lang=de") == {"q": "a", "lang": "de"}
    assert match("find://x?q={q}{&lang}", "find://x") is None


@pytest.mark.parametrize(
    "uri", ["users:///profile", "users://", "users://profile", "users://a/b/profile", "users://a?b/profile"]
)
def test_a_plain_variable_is_one_segment_and_never_empty(uri: str) -> None:
    assert match("users://{user_id}/profile", uri) is None


@pytest.mark.parametrize(
    "template", ["x://{a}", "x://{+a}", "x://{a}/y", "x://y{/a*}", "x://{a}{?b}", "x://{a}{/b*}"]
)
def test_a_template_does_not_match_itself(template: str) -> None:
    assert match(template, template) is None


def test_an_encoded_brace_is_a_value() -> None:
    assert match("x://{a}", "x://%7Bb%7D") == {"a": "{b}"}


@pytest.mark.parametrize(
    ("raw", "decoded"),
    [("a%20b", "a b"), ("a+b", "a+b"), ("%2520", "%20"), ("%C3%A9", "é"), ("é", "é"), ("a%2Fb", "a/b")],
)
def test_a_value_is_decoded_exactly_once(raw: str, decoded: str) -> None:
    assert match("demo://f/{n}", f"demo://f/{raw}") == {"n": decoded}


@pytest.mark.parametrize("raw", ["%ZZ", "%FF", "%", "a%2", "%C3", "%c0%ae", "\ud800", "ok%"])
@pytest.mark.parametrize("template", ["demo://f/{n}", "demo://f/{+n}", "demo://f{/n*}", "demo://f/x{?n}"])
def test_a_value_that_is_no_text_is_invalid_and_not_unknown(template: str, raw: str) -> None:
    uri = "demo://f/x?n=" + raw if "?" in template else "demo://f/" + raw
    found = match(template, uri)
    assert isinstance(found, BadValue)
    assert found.variable == "n"
    assert "percent" in str(found)


@pytest.mark.parametrize("text", ["café", "caf%C3%A9", "caf%c3%a9"])
@pytest.mark.parametrize("uri", ["café", "caf%C3%A9", "caf%c3%A9"])
def test_text_compares_after_one_percent_encoding_pass_on_both_sides(text: str, uri: str) -> None:
    assert match(f"file:///docs/{text}/{{name}}", f"file:///docs/{uri}/a.txt") == {"name": "a.txt"}


def test_nothing_else_about_a_uri_is_normalised() -> None:
    assert match("file:///docs/cafe/{name}", "file:///docs/%63afe/a.txt") is None
    assert match("demo://A/{name}", "demo://a/x") is None
    assert match("demo://a/{+name}", "demo://a/b/../c") == {"name": "b/../c"}
    assert encode_once(encode_once("é%c3x%zz")) == encode_once("é%c3x%zz") == "%C3%A9%C3x%zz"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("manuals://{+path}{ext}", "nothing stands between path and ext"),
        ("manuals://{a}{b}", "nothing stands between a and b"),
        ("manuals://{/path*}{ext}", "nothing stands between path and ext"),
        ("manuals://{+path}/{+rest}", "both path and rest match across segments"),
        ("manuals://{+path}{/rest*}", "both path and rest match across segments"),
        ("manuals://{+a,b}/x", "both a and b match across segments"),
        ("manuals://{a", "a { is not closed"),
        ("manuals://a}", "a } closes nothing"),
        ("manuals://{a}/{a}", "the variable a stands in it twice"),
        ("manuals://{a:3}", "cuts a value short"),
        ("manuals://x{?a*}", "is a list; only path segments are"),
        ("manuals://{a*}", "is a list; only path segments are"),
        ("manuals://{;a}", "the operators are + # . / ? and &"),
        ("manuals://{}", "is no variable"),
        ("manuals://{a-b}", "is no variable"),
        ("manuals://{1a}", "is no variable"),
        ("manuals://x{?a}/y", "the query must come last"),
        ("manuals://x{?a}{b}", "the query must come last"),
        ("manuals://x{#a}{?b}", "the fragment must come last"),
        ("manuals://x{#a,b}", "a fragment is one variable"),
        ("manuals://x#y{#a}", "its fragment begins with #"),
        ("manuals://x?y=1{?a}", "its query begins twice"),
        ("manuals://x{&a}", "begin it with {?name}"),
        ("manuals://%zz/{a}", "two hexadecimal digits"),
        ("manuals://x", "it has 0 variables"),
        ("m{a}://x", "it must start with a scheme"),
        ("{a}:x", "it must start with a scheme"),
        ("a b://{x}", "it must start with a scheme"),
        ("x://" + "/".join(f"{{v{i}}}" for i in range(33)), "1 to 32 are allowed"),
    ],
)
def test_a_template_that_cannot_be_matched_without_a_doubt_is_refused(template: str, why: str) -> None:
    with pytest.raises(InvalidTemplate, match=re.escape(why)):
        UriTemplate.parse(template)


ADVERSARIAL = [
    ("x://{/id*}".replace("://", "://r"), "x://r" + "/a" * 4000),
    ("x://{a}-{b}-{c}-{d}-{e}-{f}!", "x://" + "-" * 8000),
    ("x://{a}-{b}-{c}-{d}-{e}-{f}!", "x://" + "a-" * 4000),
    ("x://{a}aa{b}aa{c}aa{d}aab", "x://" + "a" * 8000),
    ("x://{a},{b},{c}/{+rest}/{d},{e},{f}", "x://" + "a," * 4000),
    ("x://{a},{b},{c}/{+rest}/{d},{e},{f}", "x://" + "a,/" * 2700),
    ("x://{+rest}.{a}.{b}.{c}.{d}/", "x://" + ".a" * 4000),
    ("x://{a}" + "a" * 300 + "{b}" + "a" * 300, "x://" + "a" * 8000),
    ("x://{a}{?q,r,s}", "x://a?" + "q&" * 4000),
    ("x://{a}{?q}", "x://a?q=" + "%25" * 2600),
    ("x://{a}", "x://" + "é" * 8000),
    ("x://{a}", "x://" + "a" * 10_000_000),
]


@pytest.mark.parametrize(("template", "uri"), ADVERSARIAL, ids=range(len(ADVERSARIAL)))
def test_no_uri_makes_matching_slow(template: str, uri: str) -> None:
    """A backtracking matcher needs hours for these; ours milliseconds (of CPU: other load does not count)."""
    parsed = UriTemplate.parse(template)
    began = time.process_time()
    parsed.match(uri)
    assert time.process_time() - began < 0.25


def test_a_uri_over_the_limit_matches_nothing() -> None:
    longest = "x://" + "a" * (MAX_MATCHED - 4)
    assert match("x://{a}", longest) is not None
    assert match("x://{a}", longest + "a") is None
    assert find([UriTemplate.parse("x://{a}")], longest + "a") is None


TEMPLATES = [
    "x://{a}/{b}",
    "x://{a}-{b}",
    "x://{a,b}",
    "x://{+a}",
    "x://y/{+a}/{b}{.c}",
    "x://{a}/{+b}.txt",
    "x://{a}{/b*}",
    "x://y{/b*}{.c}{?q,r}",
    "x://{a}{?q,r}{&s}",
    "x://y?a={a}{&q}",
    "x://é/{a}{#q}",
    "x://{/a}{.b}{?q}".replace("://", "://y"),
]


@given(st.sampled_from(TEMPLATES), st.data())
def test_what_a_template_expands_to_it_matches_and_expands_to_again(text: str, data: st.DataObject) -> None:
    template = UriTemplate.parse(text)
    word = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
    values: dict[str, str | list[str]] = {
        v.name: data.draw(st.lists(word, max_size=3) if v.is_list else word) for v in template.variables
    }
    for variable in template.variables:
        if variable.is_optional and data.draw(st.booleans()):
            del values[variable.name]
    uri = template.expand(values)
    found = template.match(uri)
    assert isinstance(found, dict), (uri, found)
    assert found.keys() == values.keys()
    assert template.expand(found) == uri
    if not any(mark in str(value) for value in values.values() for mark in "-./,"):
        assert found == values


@given(st.sampled_from(TEMPLATES), st.text())
def test_matching_never_raises(text: str, uri: str) -> None:
    template = UriTemplate.parse(text)
    for each in (uri, "x://" + uri, "x://y" + uri, "x://y/" + uri):
        found = template.match(each)
        assert found is None or isinstance(found, dict | BadValue)


@given(st.text())
def test_any_text_is_a_template_or_refused_with_a_sentence(text: str) -> None:
    for each in (text, "x://" + text, "x://{a}" + text):
        try:
            said = f"{UriTemplate.parse(each)}"
            assert said == each
        except InvalidTemplate as error:
            said = str(error)
            assert said.endswith(".")


PIECES = ["a", "b", "-", "/", ".", "{v}", "{+v}", "{.v}", "{/v}", "{/v*}"]


def _oracle(parts: list[str]) -> re.Pattern[str]:
    """Return the regular expression that means the same, and backtracks."""
    said = {
        "{v}": "[^/?#]+",
        "{+v}": "[^?#]+",
        "{.v}": r"\.[^/?#]+",
        "{/v}": "/[^/?#]+",
        "{/v*}": "(?:/[^/?#]+)*",
    }
    return re.compile("x:" + "".join(said.get(part, re.escape(part)) for part in parts))


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=7), st.text("ab-/.", max_size=9))
def test_a_match_is_found_whenever_there_is_one(parts: list[str], rest: str) -> None:
    """The scan never goes back, and still finds what a backtracking search finds."""
    count = itertools.count()
    text = "x:" + "".join(part.replace("v", f"v{next(count)}") for part in parts)
    try:
        template = UriTemplate.parse(text)
    except InvalidTemplate:
        return
    uri = "x:" + rest
    assert (template.match(uri) is not None) == (_oracle(parts).fullmatch(uri) is not None)


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("x://a{/list*}.{ext}", "x://a..b", {"list": [], "ext": ".b"}),
        ("x://a{/list*}.{ext}", "x://a/b.c.d", {"list": ["b.c"], "ext": "d"}),
        ("x://{a}-{/list*}", "x://p-q-/r/s", {"a": "p-q", "list": ["r", "s"]}),
        ("x://{a}-{/list*}/{b}", "x://p-q-/r", {"a": "p-q", "list": [], "b": "r"}),
    ],
)
def test_a_list_is_found_between_boundaries_that_occur_twice(template: str, uri: str, values: Values) -> None:
    """What stood left of the last boundary was taken for the list, which begins with a slash or is empty."""
    assert match(template, uri) == values


def test_the_more_literal_template_answers_whatever_the_order_of_registration() -> None:
    texts = ["demo://{a}/x", "demo://{+p}", "demo://{a}", "demo://{a}/{b}", "demo://{a}/{b}{?q}"]
    for order in itertools.permutations(map(UriTemplate.parse, texts)):
        ranked = sorted(order, key=lambda each: each.specificity)
        assert [str(each) for each in ranked] == [
            "demo://{a}/x",
            "demo://{a}/{b}",
            "demo://{a}/{b}{?q}",
            "demo://{a}",
            "demo://{+p}",
        ]
        found = {
            uri: str(find(ranked, uri)) for uri in ("demo://1/x", "demo://1/y", "demo://1", "demo://1/y/z")
        }
        assert found == {
            "demo://1/x": "demo://{a}/x",
            "demo://1/y": "demo://{a}/{b}",
            "demo://1": "demo://{a}",
            "demo://1/y/z": "demo://{+p}",
        }


def test_two_templates_that_differ_in_names_only_have_one_order() -> None:
    a, b = UriTemplate.parse("demo://{a}"), UriTemplate.parse("demo://{b}")
    assert sorted([b, a], key=lambda each: each.specificity) == [a, b]
    assert len({a, b, UriTemplate.parse("demo://{a}")}) == 2


def test_what_cannot_be_expanded_is_refused_with_a_sentence() -> None:
    template = UriTemplate.parse("x://{a}{/b*}{?q}")
    refused: list[dict[str, str | list[str]]] = [
        {"b": []},
        {"a": "", "b": []},
        {"a": ["x"], "b": []},
        {"a": "x", "b": "y"},
        {"a": "\ud800", "b": []},
    ]
    for each in refused:
        with pytest.raises(InvalidUri):
            template.expand(each)
    with pytest.raises(InvalidUri, match="empty item"):
        template.expand({"a": "x", "b": ["y", ""]})


def test_a_brace_makes_a_template() -> None:
    assert is_template("x://{a}")
    assert is_template("x://a}")
    assert not is_template("x://a%7B")
