"""Which of a tenant's templates answers for a URI, without asking each of a thousand.

Pure. Templates are kept by what all their URIs begin with: a URI is looked up once for each length that such
a beginning has, and only the templates found so are matched. Rules:

1. The answer is that of asking one after the other by `specificity` (uri_template.py, rule 6).
2. No template is matched twice, and none whose beginning the URI does not have.
"""

import heapq
from collections.abc import Iterator, Sequence

from broker.core.uri_template import MAX_MATCHED, BadValue, UriTemplate, Values, encode_once


class TemplateIndex:
    """Templates, sorted by `specificity`; each is known by its place in that order."""

    def __init__(self, ordered: Sequence[UriTemplate]) -> None:
        self._ordered = tuple(ordered)
        self._places: dict[str, list[int]] = {}
        """The templates of each beginning, in order."""
        for place, template in enumerate(ordered):
            self._places.setdefault(template.prefix, []).append(place)
        self._lengths = sorted({len(prefix) for prefix in self._places})

    def __repr__(self) -> str:
        return f"<TemplateIndex of {len(self._ordered)} with {len(self._places)} beginnings>"

    def match(self, uri: str) -> tuple[int, Values | BadValue] | None:
        """Return the place of the template that answers for `uri`, and the values in it; None for none."""
        if len(uri) > MAX_MATCHED:
            return None
        encoded = encode_once(uri)
        for place in self._candidates(encoded):
            values = self._ordered[place].match_encoded(encoded)
            if values is not None:
                return place, values
        return None

    def _candidates(self, encoded: str) -> Iterator[int]:
        found = (self._places.get(encoded[:length], ()) for length in self._lengths if length <= len(encoded))
        return heapq.merge(*found)
