"""URI templates (RFC 6570), in both directions: the values in a URI, and a URI of values.

Pure. The broker asks which template a URI belongs to, the worker what the values are; both ask here, so that
they cannot disagree. RFC 6570 defines expansion only; matching is ours:

1. `{x}`, `{.x}`, `{/x}` match one segment: one or more characters without `/`, `?` and `#`. `{+x}` matches
   across `/`; `{/x*}` matches any number of segments, none included, as a list; `{#x}` ends a template and
   matches the fragment. No value is empty outside of a query: `users://{id}` does not match `users://`. Nor
   has one a bare brace, which no expansion leaves: who reads the template itself is told that it is unknown.
2. `{?a,b}` and `{&c}` end the template (before a fragment): its URIs may leave them out, order them as they
   like, and carry more; the first of two equal names counts. Names compare as they are written.
3. What could be split in two ways is refused where it is declared: two variables with nothing between, a
   second variable across segments. Where text between two variables occurs twice, it is the last one that
   splits (the first one before a variable across segments): `{name}-{version}` of `a-b-1` is `a-b` and `1`.
4. The text of a template and a URI compare after one percent-encoding pass on both: characters beyond ASCII
   are encoded, hex digits become capitals, nothing else changes (field report 70). A value is decoded exactly
   once, and `+` is a plus (field report 71).
5. Matching looks at each part of the URI once, and never goes back. Yet it finds a match whenever there is
   one: all variables of one segment stop at the same characters, so that a boundary moved the other way only
   gives a neighbour more to choke on; `{+x}` takes whatever is left between what matches from both ends; and
   how many slashes there are says whether `{/x*}` is empty, and where it begins.
6. Of all templates that match, the first by `specificity` answers; a fixed URI comes before any template.
   The order depends on the texts alone, so every replica and every worker finds the same one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from broker.core.errors import InvalidUri
from broker.core.uri_grammar import BETWEEN, LEAD, Part, Variable, parse

MAX_MATCHED = 8192
"""The longest URI that is looked at, in characters; a longer one matches nothing."""

_BEYOND = re.compile(r"[^\x00-\x7f]+|%[0-9A-Fa-f]{2}")
_TRIPLET = re.compile(r"%[0-9A-Fa-f]{2}")
_BROKEN = re.compile(r"%(?![0-9A-Fa-f]{2})")
_RESERVED = ":/?#[]@!$&'()*+,;="

Value = str | list[str]
Values = dict[str, Value]


@dataclass(frozen=True, slots=True)
class BadValue:
    """The URI fits the template, but a value in it is no text: its percent-encoding is broken or not UTF-8.

    The caller sent something invalid (invalid params), which is another thing than an unknown resource.
    """

    variable: str
    raw: str

    def __str__(self) -> str:
        return (
            f"the value of {self.variable} is {self.raw[:120]!a}, which is not percent-encoded UTF-8; "
            "a percent sign is followed by two hexadecimal digits, and a plain one is written %25"
        )


class _Literal(str):
    """Text that stands in every URI of the template, after the percent-encoding pass."""

    __slots__ = ()


_Atom = _Literal | Variable


class UriTemplate:
    """A parsed template. Equal texts are equal templates."""

    __slots__ = (
        "_after",
        "_ampersands",
        "_before",
        "_fragment",
        "_multi",
        "_parts",
        "_query",
        "_slashes",
        "_without",
        "prefix",
        "specificity",
        "text",
        "variables",
    )

    def __init__(self, text: str, parts: Sequence[Part]) -> None:
        self.text = text
        self.variables = tuple(v for part in parts if isinstance(part, tuple) for v in part)
        self._parts = tuple(parts)
        self._query = frozenset(v.name for v in self.variables if v.is_optional)
        self._fragment = next((v for v in self.variables if v.operator == "#"), None)
        atoms = _atoms(parts)
        at = next((i for i, atom in enumerate(atoms) if isinstance(atom, Variable) and atom.is_multi), None)
        self._multi = None if at is None else atoms[at]
        self._before = atoms[:at] if at is not None else ()
        self._after = atoms[at + 1 :] if at is not None else atoms
        self._without = _joined([*self._before, *self._after])
        """What is scanned if the list is empty."""
        self._slashes = [_slashes(self._before), _slashes(self._without)]
        """How many slashes the text has before the list, and in all."""
        fixed = "".join(part for part in parts if isinstance(part, str))
        self._ampersands = fixed.partition("?")[2].count("&") if "?" in fixed else None
        """How many & belong to a query that the text itself begins; None if the text begins none."""
        self.prefix = str(atoms[0])
        """What every matching URI begins with, after the percent-encoding pass."""
        self.specificity = (
            -sum(len(atom) for atom in atoms if isinstance(atom, _Literal)),
            len(self.variables),
            self._multi is not None,
            text,
        )
        """Sorts templates, the first to be asked first: most literal characters, then fewest variables, then
        one without a variable across segments, then the text."""

    def __repr__(self) -> str:
        return f"<UriTemplate {self.text}>"

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UriTemplate) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @classmethod
    def parse(cls, text: str) -> "UriTemplate":
        """Return the template that `text` writes.

        Raises:
            InvalidTemplate: with a sentence that says what cannot be and what can.
        """
        return cls(text, parse(text))

    def match(self, uri: str) -> Values | BadValue | None:
        """Return the decoded values in `uri` by variable, None if it does not fit.

        Never raises, whatever `uri` is, and takes time in proportion to its length.
        """
        if len(uri) > MAX_MATCHED:
            return None
        return self.match_encoded(encode_once(uri))

    def match_encoded(self, uri: str) -> Values | BadValue | None:
        """Do what `match` does for a `uri` after `encode_once`: for whoever asks many templates."""
        if len(uri) > 3 * MAX_MATCHED or not uri.startswith(self.prefix):
            return None
        raw: dict[str, str | list[str]] = {}
        head = uri
        if self._fragment is not None:
            head, _, fragment = uri.partition("#")
            if not fragment:
                return None
            raw[self._fragment.name] = fragment
        if self._query:
            cut = self._cut(head)
            head, query = head[:cut], head[cut + 1 :]
            if "#" in query:
                return None
            raw |= self._pairs(query)
        if not self._scan(head, raw):
            return None
        return _decoded(raw)

    def expand(self, values: Mapping[str, str | Sequence[str]]) -> str:
        """Return the URI of `values`; variables of the query may be missing.

        Raises:
            InvalidUri: another variable is missing or empty, or a value is of the wrong kind.
        """
        out: list[str] = []
        for part in self._parts:
            if isinstance(part, str):
                out.append(part)
                continue
            given = [v for v in part if not (v.is_optional and v.name not in values)]
            texts = [self._text(v, values.get(v.name)) for v in given]
            texts = [text for text in texts if text]
            if texts:
                operator = part[0].operator
                # RFC 6570 writes & even where {?a} before {&b} is empty; such a URI would have no query.
                is_first = operator == "&" and not any("?" in text for text in out)
                out.append(("?" if is_first else LEAD[operator]) + BETWEEN[operator].join(texts))
        return "".join(out)

    def _text(self, variable: Variable, value: str | Sequence[str] | None) -> str:
        """Return how `value` stands in a URI."""
        if value is None or (not value and not variable.is_optional and not variable.is_list):
            raise InvalidUri(self.text, f"the variable {variable.name} has no value")
        if isinstance(value, str) == variable.is_list:
            kind = "a list of text" if variable.is_list else "text"
            raise InvalidUri(self.text, f"the variable {variable.name} is {kind}, not {value!a}")
        if not isinstance(value, str):
            if not all(value):
                raise InvalidUri(self.text, f"the list {variable.name} has an empty item")
            return "/".join(_quoted(item, variable) for item in value)
        quoted = _quoted(value, variable)
        return f"{variable.name}={quoted}" if variable.is_optional else quoted

    def _cut(self, head: str) -> int:
        """Return where the optional variables of the query begin: the place of their ? or &, or the end."""
        at = head.find("?")
        if self._ampersands is None:
            return len(head) if at < 0 else at
        for _ in range(self._ampersands + 1):
            if at < 0:
                return len(head)
            at = head.find("&", at + 1)
        return len(head) if at < 0 else at

    def _pairs(self, query: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for pair in query.split("&"):
            name, _, value = pair.partition("=")
            if name in self._query:
                found.setdefault(name, value)
        return found

    def _scan(self, uri: str, raw: dict[str, str | list[str]]) -> bool:
        """Match all but the query and the fragment, from both ends; put what is found into `raw`."""
        stops = "/?#{}&" if self._ampersands is not None else "/?#{}"
        multi = self._multi
        if not isinstance(multi, Variable):
            return _backward(self._after, uri, raw, stops, is_whole=True) == 0
        if multi.is_list:
            return self._scan_list(multi, uri, raw, stops)
        end = _backward(self._after, uri, raw, stops, is_whole=False)
        start = None if end is None else _forward(self._before, uri[:end], raw, stops)
        if start is None or start == end or _has(uri[start:end], "?#{}"):
            return False
        raw[multi.name] = uri[start:end]
        return True

    def _scan_list(self, multi: Variable, uri: str, raw: dict[str, str | list[str]], stops: str) -> bool:
        before, in_all = self._slashes
        if uri.count("/") <= in_all:
            raw[multi.name] = []
            return _backward(self._without, uri, raw, stops, is_whole=True) == 0
        start = -1
        for _ in range(before + 1):
            start = uri.find("/", start + 1)
        if _backward(self._before, uri[:start], raw, stops, is_whole=True) != 0:
            return False
        length = _backward(self._after, uri[start:], raw, stops, is_whole=False)
        if not length or _has(uri[start : start + length], "?#{}"):
            return False
        segments = uri[start + 1 : start + length].split("/")
        raw[multi.name] = segments
        return all(segments)


def find(templates: Iterable[UriTemplate], uri: str) -> UriTemplate | None:
    """Return the template that answers for `uri`; `templates` are sorted by `specificity`."""
    if len(uri) > MAX_MATCHED:
        return None
    encoded = encode_once(uri)
    return next((each for each in templates if each.match_encoded(encoded) is not None), None)


def is_template(text: str) -> bool:
    """Whether `text` is meant as a template: it has a brace, which no RFC 3986 URI has."""
    return "{" in text or "}" in text


def encode_once(text: str) -> str:
    """Return `text` after the one percent-encoding pass of rule 4; doing it again changes nothing."""
    if text.isascii() and "%" not in text:
        return text
    return _BEYOND.sub(_encoded, text)


def _encoded(found: re.Match[str]) -> str:
    run = found[0]
    return run.upper() if run[0] == "%" else quote(run.encode(errors="surrogatepass"), safe="")


def _quoted(value: str, variable: Variable) -> str:
    try:
        if variable.operator not in ("+", "#"):
            return quote(value, safe="")
        # Reserved expansion keeps triplets (RFC 6570, 3.2.3); then a value that holds one would come back
        # decoded. Here a value is text that was decoded once, so its percent sign is a percent sign.
        return quote(value, safe=_RESERVED.replace("?", "").replace("#", ""))
    except UnicodeEncodeError:
        raise InvalidUri(value, "it contains half of a surrogate pair") from None


def _atoms(parts: Sequence[Part]) -> tuple[_Atom, ...]:
    """Return what is scanned: text and variables by turns, without the query and the fragment."""
    atoms: list[_Atom] = []
    for part in parts:
        if isinstance(part, str):
            atoms.append(_Literal(encode_once(part)))
            continue
        operator = part[0].operator
        if operator in ("?", "&", "#"):
            break
        for variable in part:
            if not variable.is_list:
                atoms.append(_Literal(LEAD[operator] if variable is part[0] else BETWEEN[operator]))
            atoms.append(variable)
    return _joined(atoms)


def _joined(atoms: Iterable[_Atom]) -> tuple[_Atom, ...]:
    """Return `atoms` with neighbouring texts as one, and without empty ones."""
    joined: list[_Atom] = []
    for atom in atoms:
        if isinstance(atom, _Literal) and joined and isinstance(joined[-1], _Literal):
            joined[-1] = _Literal(joined[-1] + atom)
        elif atom:
            joined.append(atom)
    return tuple(joined)


def _slashes(atoms: Iterable[_Atom]) -> int:
    return sum(atom.count("/") for atom in atoms if isinstance(atom, _Literal))


def _backward(
    atoms: Sequence[_Atom], uri: str, raw: dict[str, str | list[str]], stops: str, *, is_whole: bool
) -> int | None:
    """Match `atoms` up to the end of `uri`, from right to left; return where they begin, None if they do not.

    `is_whole`: they are all there is, so that the first text stands at 0.
    """
    end = len(uri)
    waiting: Variable | None = None
    for i in range(len(atoms) - 1, -1, -1):
        atom = atoms[i]
        if isinstance(atom, Variable):
            waiting = atom
            continue
        if waiting is None:
            if not uri.endswith(atom, 0, end):
                return None
            end -= len(atom)
            continue
        at = 0 if i == 0 and is_whole else uri.rfind(atom, 0, end - 1)
        if at < 0 or not uri.startswith(atom, at):
            return None
        value = uri[at + len(atom) : end]
        if not value or _has(value, stops):
            return None
        raw[waiting.name] = value
        waiting = None
        end = at
    return end


def _forward(atoms: Sequence[_Atom], uri: str, raw: dict[str, str | list[str]], stops: str) -> int | None:
    """Match `atoms` from the start of `uri`, from left to right; return where they end, or None."""
    at = 0
    waiting: Variable | None = None
    for atom in atoms:
        if isinstance(atom, Variable):
            waiting = atom
            continue
        if waiting is None:
            if not uri.startswith(atom, at):
                return None
            at += len(atom)
            continue
        found = uri.find(atom, at + 1)
        if found < 0 or _has(uri[at:found], stops):
            return None
        raw[waiting.name] = uri[at:found]
        waiting = None
        at = found + len(atom)
    return at


def _has(text: str, characters: str) -> bool:
    return any(character in text for character in characters)


def _decoded(raw: Mapping[str, str | list[str]]) -> Values | BadValue:
    values: Values = {}
    for name, value in raw.items():
        texts = [value] if isinstance(value, str) else value
        decoded: list[str] = []
        for text in texts:
            if "%" not in text:
                decoded.append(text)
                continue
            try:
                if _BROKEN.search(text):
                    return BadValue(name, text)
                decoded.append(unquote_to_bytes(text).decode())
            except UnicodeDecodeError:
                return BadValue(name, text)
        values[name] = decoded[0] if isinstance(value, str) else decoded
    return values
