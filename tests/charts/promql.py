"""Reads PromQL as far as our alerts and panels use it: a strict small grammar, so that a typo fails here.

expr    := operand (operator [bool] [on|ignoring (labels)] operand)*
operand := number | "(" expr ")" | function "(" expr, … ")" | aggregate [by|without (labels)] "(" expr, … ")"
         | selector [range] ["offset" duration]
"""

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"\s*(?:(?P<duration>\d+(?:ms|[smhdw])\b|\$__rate_interval)|(?P<number>\d+(?:\.\d+)?)"
    r'|(?P<string>"(?:[^"\\]|\\.)*")|(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)'
    r"|(?P<operator>==|!=|>=|<=|=~|!~|[-+*/%^<>=(){}\[\],]))"
)
_AGGREGATES = {"sum", "min", "max", "avg", "count", "topk", "quantile"}
_FUNCTIONS = {"rate", "increase", "abs", "absent", "histogram_quantile"}
_NEEDS_RANGE = {"rate", "increase"}
_BINARY = {"==", "!=", ">", "<", ">=", "<=", "+", "-", "*", "/", "%", "^", "and", "or", "unless"}


class NotPromQLError(ValueError):
    """An expression that does not parse."""


@dataclass
class Selector:
    """A metric's name, its matchers by label, and whether it is a range."""

    name: str
    matchers: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    is_range: bool = False


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise NotPromQLError(f"{text!r} at {position}")
            assert match.lastgroup is not None
            self.tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        self.selectors: list[Selector] = []
        self.labels: set[str] = set()

    def peek(self) -> str:
        return self.tokens[0][1] if self.tokens else ""

    def take(self, kind: str | None = None, *values: str) -> str:
        if not self.tokens:
            raise NotPromQLError(f"{self.text!r} ends too early")
        found, value = self.tokens.pop(0)
        if (kind is not None and found != kind) or (values and value not in values):
            raise NotPromQLError(f"{value!r} in {self.text!r}")
        return value

    def expression(self) -> None:
        self.operand()
        while self.peek() in _BINARY:
            self.take()
            if self.peek() == "bool":
                self.take()
            if self.peek() in {"on", "ignoring"}:
                self.take()
                self.names()
            self.operand()

    def operand(self) -> None:
        kind, value = self.tokens[0] if self.tokens else ("", "")
        if kind == "number":
            self.take()
        elif value == "(":
            self.take()
            self.expression()
            self.take("operator", ")")
        elif value in _AGGREGATES:
            self.take()
            if self.peek() in {"by", "without"}:
                self.take()
                self.names()
            self.arguments()
        elif kind == "name" and len(self.tokens) > 1 and self.tokens[1][1] == "(":
            if value not in _FUNCTIONS:
                raise NotPromQLError(f"no function {value} in {self.text!r}")
            self.take()
            before = len(self.selectors)
            self.arguments()
            if any(each.is_range != (value in _NEEDS_RANGE) for each in self.selectors[before:]) and (
                value in _NEEDS_RANGE or value in {"abs", "absent"}
            ):
                raise NotPromQLError(f"{value} has the wrong kind of vector in {self.text!r}")
        else:
            self.selector()

    def arguments(self) -> None:
        self.take("operator", "(")
        self.expression()
        while self.peek() == ",":
            self.take()
            self.expression()
        self.take("operator", ")")

    def names(self) -> None:
        self.take("operator", "(")
        self.labels.add(self.take("name"))
        while self.peek() == ",":
            self.take()
            self.labels.add(self.take("name"))
        self.take("operator", ")")

    def selector(self) -> None:
        selector = Selector(self.take("name"))
        self.selectors.append(selector)
        if self.peek() == "{":
            self.take()
            while self.peek() != "}":
                label = self.take("name")
                selector.matchers[label] = (
                    self.take("operator", "=", "!=", "=~", "!~"),
                    self.take("string")[1:-1],
                )
                if self.peek() != "}":
                    self.take("operator", ",")
            self.take("operator", "}")
        if self.peek() == "[":
            self.take()
            self.take("duration")
            self.take("operator", "]")
            selector.is_range = True


def parse(text: str) -> tuple[list[Selector], set[str]]:
    """Return the selectors of an expression, and the labels that it groups by.

    Raises:
        NotPromQLError: it does not parse.
    """
    reader = _Reader(text)
    reader.expression()
    if reader.tokens:
        raise NotPromQLError(f"{reader.peek()!r} is too much in {text!r}")
    return reader.selectors, reader.labels
