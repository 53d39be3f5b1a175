"""Who may see what: one question for list, read, templates, completion, subscribe and cues (promise 8).

A rule is what a resource requires of whoever sees it: scopes, all of which the caller must have, and
subjects, one of which it must be; without subjects anybody of the tenant. A list of subjects that is empty is
a rule, too, and nobody fulfils it: who takes the last name off an allow-list must not open it to everybody.
It is one frozen set of words, as it is stored beside the resource and travels in the log: a scope is itself,
a subject is percent-encoded behind a double quote, which no scope contains (RFC 6749, 3.3); the quote alone
is nobody.

A well-formed URI that is unknown or forbidden is subscribed to all the same and stays silent, so `may_read`
is also what decides about each cue.
"""

from collections.abc import Iterable
from typing import cast
from urllib.parse import quote, unquote

from broker.core.errors import InvalidContents, TooLarge
from broker.core.identity import Principal

READ = "resources:read"
PUBLISH = "resources:publish"
ADMIN = "admin"
SCOPES = frozenset({READ, PUBLISH, ADMIN})
"""What a credential may be for; other scopes are a tenant's own, to be required by its resources."""

MAX_SUBJECT = 512
"""Characters of a subject as it is written in an allow-list."""

_SUBJECT = '"'
_NOBODY = _SUBJECT
"""The word of an empty allow-list; no caller's word, since no subject is empty."""


def may_read(principal: Principal, rule: frozenset[str]) -> bool:
    """Whether `principal` fulfils the rule of a resource of its tenant."""
    granted = principal.scopes
    if granted is None or not rule:
        return True
    is_listed: bool | None = None
    for word in rule:
        if word[0] != _SUBJECT:
            if word not in granted:
                return False
        elif is_listed is None:
            is_listed = subject_word(principal.subject) in rule
    return is_listed is not False


def subject_word(subject: str) -> str:
    """Return the word by which a rule names a subject."""
    return _SUBJECT + quote(subject, safe="/:@")


def parted(rule: Iterable[str]) -> tuple[list[str], list[str] | None]:
    """Return the scopes and the subjects of a rule, as they were given; None for no list of subjects."""
    scopes = sorted(word for word in rule if word[0] != _SUBJECT)
    subjects = [word for word in rule if word[0] == _SUBJECT]
    return scopes, sorted(unquote(word[1:]) for word in subjects if word != _NOBODY) if subjects else None


def check_subjects(subjects: Iterable[str]) -> tuple[str, ...]:
    """Return the words of an allow-list, each once; of an empty one, the word that nobody has.

    Raises:
        InvalidContents: a single string, or what cannot be a subject.
        TooLarge: a subject of more than `MAX_SUBJECT` characters.
    """
    if isinstance(subjects, str) or not isinstance(cast("object", subjects), Iterable):
        raise InvalidContents("subjects is a list of subjects.")
    given = list(subjects)
    for subject in given:
        if not isinstance(subject, str) or not subject or not subject.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance] # publishers send anything
            raise InvalidContents(f"{subject!a} is no subject: it is text without control characters.")
        if len(subject) > MAX_SUBJECT:
            raise TooLarge(f"A subject has at most {MAX_SUBJECT} characters; this one has {len(subject)}.")
    return tuple(sorted({subject_word(subject) for subject in given})) or (_NOBODY,)
