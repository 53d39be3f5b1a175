"""Who may see what: one question for list, read, templates, subscribe and cues (promise 8).

A well-formed URI that is unknown or forbidden is subscribed to all the same and stays silent, so `may_read`
is also what decides about each cue.
"""

from broker.core.identity import Principal


def may_read(principal: Principal, required: frozenset[str]) -> bool:
    """Whether `principal` has every scope that a resource of its tenant requires."""
    granted = principal.scopes
    return granted is None or required <= granted
