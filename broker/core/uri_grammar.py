"""What a URI template may be: its text into parts, and sentences for what cannot be matched (RFC 6570).

Pure. What no URI could be split by without a doubt is refused here, where it is declared, and not at the
first read (rules 1 to 3 of uri_template.py).
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from broker.core.errors import InvalidTemplate, InvalidUri
from broker.core.identity import check_uri

MAX_VARIABLES = 32

LEAD = {"": "", "+": "", "#": "#", ".": ".", "/": "/", "?": "?", "&": "&"}
"""What an expression of each operator begins with in a URI (RFC 6570, appendix A)."""
BETWEEN = {"": ",", "+": ",", "#": ",", ".": ".", "/": "/", "?": "&", "&": "&"}
"""What stands between its variables."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_BROKEN = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Variable(NamedTuple):
    """One variable of a template, as it is declared."""

    name: str
    operator: str
    is_list: bool

    @property
    def is_optional(self) -> bool:
        """Whether a matching URI may leave it out: a variable of the query."""
        return self.operator in ("?", "&")

    @property
    def is_multi(self) -> bool:
        """Whether it matches across segments."""
        return self.is_list or self.operator == "+"


Part = str | tuple[Variable, ...]
"""Text as it is written, or the variables of one expression."""


def parse(text: str) -> list[Part]:
    """Return the parts of the template `text`.

    Raises:
        InvalidTemplate: with a sentence that says what cannot be and what can.
    """
    try:
        check_uri(text)
    except InvalidUri as error:
        raise InvalidTemplate(text, error.why) from None
    # That was also the proof that the scheme is fixed: the first part is text, up to the colon at least.
    parts = _parts(text)
    _refuse_names(text, parts)
    _refuse_order(text, parts)
    _refuse_neighbours(text, parts)
    return parts


def _parts(text: str) -> list[Part]:
    parts: list[Part] = []
    at = 0
    while at < len(text):
        brace = text.find("{", at)
        literal = text[at:] if brace < 0 else text[at:brace]
        if "}" in literal:
            raise InvalidTemplate(text, "a } closes nothing")
        if _BROKEN.search(literal):
            raise InvalidTemplate(text, "a percent sign is not followed by two hexadecimal digits")
        if literal:
            parts.append(literal)
        if brace < 0:
            break
        close = text.find("}", brace)
        if close < 0:
            raise InvalidTemplate(text, "a { is not closed")
        parts.append(_expression(text, text[brace + 1 : close]))
        at = close + 1
    return parts


def _expression(text: str, inside: str) -> tuple[Variable, ...]:
    operator = inside[:1] if not inside[:1].isalnum() and inside[:1] not in "_{*" else ""
    if operator not in LEAD:
        raise InvalidTemplate(text, f"{{{inside}}} begins with {operator}; the operators are + # . / ? and &")
    variables: list[Variable] = []
    for each in inside[len(operator) :].split(","):
        name, star, rest = each.partition("*")
        if ":" in each:
            raise InvalidTemplate(text, f"{{{inside}}} cuts a value short, which cannot be matched")
        if rest or not _NAME.fullmatch(name):
            raise InvalidTemplate(
                text,
                f"{{{inside}}} is no variable; one begins with a letter and goes on with letters, digits and "
                "_, as the parameter that takes its value",
            )
        if star and operator != "/":
            raise InvalidTemplate(text, f"{{{inside}}} is a list; only path segments are, as in {{/{name}*}}")
        variables.append(Variable(name, operator, bool(star)))
    return tuple(variables)


def _refuse_names(text: str, parts: Sequence[Part]) -> None:
    names = [v.name for part in parts if not isinstance(part, str) for v in part]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidTemplate(text, f"the variable {twice} stands in it twice")
    if not 0 < len(names) <= MAX_VARIABLES:
        raise InvalidTemplate(text, f"it has {len(names)} variables; 1 to {MAX_VARIABLES} are allowed")


def _refuse_order(text: str, parts: Sequence[Part]) -> None:
    """Refuse a query or a fragment that does not come last, or that begins twice or not at all."""
    fixed = "".join(part for part in parts if isinstance(part, str))
    closing = ""
    for part in parts:
        operator = "" if isinstance(part, str) else part[0].operator
        shown = ascii(part) if isinstance(part, str) else f"{{{operator}{part[0].name}}}"
        if closing == "the fragment" or (closing and operator not in ("&", "#")):
            raise InvalidTemplate(text, f"{closing} must come last, but {shown} follows")
        if operator == "?" and "?" in fixed:
            raise InvalidTemplate(text, "its query begins twice; continue it with {&name}")
        if operator == "&" and not closing and "?" not in fixed:
            raise InvalidTemplate(text, "{&name} continues a query; begin it with {?name}")
        if operator in ("?", "&", "#") and "#" in fixed:
            raise InvalidTemplate(text, f"its fragment begins with #, but {shown} follows")
        if operator == "#" and len(part) > 1:
            raise InvalidTemplate(text, "a fragment is one variable, as in {#section}")
        if operator in ("?", "&"):
            closing = "the query"
        elif operator == "#":
            closing = "the fragment"


def _refuse_neighbours(text: str, parts: Sequence[Part]) -> None:
    """Refuse what could be split in two ways."""
    multi: Variable | None = None
    before: Variable | None = None
    for part in parts:
        if isinstance(part, str):
            before = None
            continue
        if before is not None and not LEAD[part[0].operator]:
            raise InvalidTemplate(
                text,
                f"nothing stands between {before.name} and {part[0].name}, so no URI says where one ends; "
                "put text between them",
            )
        before = part[-1]
        for variable in part:
            if variable.is_multi and multi is not None:
                raise InvalidTemplate(
                    text,
                    f"both {multi.name} and {variable.name} match across segments, so no URI says which of "
                    "them a segment belongs to; one such variable is allowed",
                )
            multi = variable if variable.is_multi else multi
