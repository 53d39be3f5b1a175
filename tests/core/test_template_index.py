"""A thousand templates are not asked one after the other, and the answer is the same."""

import random
from collections import Counter

from broker.core.template_index import TemplateIndex
from broker.core.uri_template import BadValue, UriTemplate, Values

asked: Counter[str] = Counter()


class Counted(UriTemplate):
    """A template that counts how often it is matched."""

    __slots__ = ()

    def match_encoded(self, uri: str) -> Values | BadValue | None:
        asked[self.text] += 1
        return super().match_encoded(uri)


def index(*texts: str) -> tuple[TemplateIndex, list[UriTemplate]]:
    ordered = sorted(map(Counted.parse, texts), key=lambda each: each.specificity)
    return TemplateIndex(ordered), ordered


def counted(found: TemplateIndex, uri: str) -> Counter[str]:
    asked.clear()
    found.match(uri)
    return Counter(asked)


def test_of_a_thousand_templates_those_that_could_match_are_asked() -> None:
    found, ordered = index(*(f"shelf{number}://{{book}}/page" for number in range(1000)))
    place, values = found.match("shelf77://a/page") or (-1, None)
    assert (ordered[place].text, values) == ("shelf77://{book}/page", {"book": "a"})
    assert counted(found, "shelf77://a/page") == {"shelf77://{book}/page": 1}
    assert counted(found, "shelf1000://a/page") == {}


def test_a_thousand_templates_that_begin_alike_are_asked_once_each_at_most() -> None:
    found, _ = index(*(f"shelf://{{book}}/page{number}" for number in range(1000)))
    for uri in ("shelf://a/page7", "shelf://a/none", "shelf://" + "a/" * 4000, "shelf://" + "a" * 9000):
        assert all(times == 1 for times in counted(found, uri).values())


def test_the_answer_is_that_of_asking_one_after_the_other() -> None:
    random.seed(7)
    words = ["a", "b", "ab", "é", "a%41"]
    pieces = ["{x}", "{+y}", "{/z*}", "{?q}"]
    texts: set[str] = set()
    for scheme in ("s", "sh", "other"):
        for _ in range(60):
            body = random.choice(words) + "/" + random.choice(["", random.choice(words)])
            texts.add(f"{scheme}://{random.choice(['', body])}{random.choice(pieces)}")
    found, ordered = index(*texts)
    for _ in range(2000):
        path = "/".join(random.choice([*words, "%ZZ", "c"]) for _ in range(random.randint(1, 4)))
        uri = f"{random.choice(['s', 'sh', 'x'])}://{path}{random.choice(['', '?q=1', '#f'])}"
        matches = ((place, each.match(uri)) for place, each in enumerate(ordered))
        assert found.match(uri) == next((each for each in matches if each[1] is not None), None)


def test_an_empty_index_matches_nothing() -> None:
    assert TemplateIndex(()).match("a://b") is None
