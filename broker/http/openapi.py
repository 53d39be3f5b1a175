"""What the publishing API says of itself in /openapi.json; the routes read their bodies themselves."""

from typing import Any

_OUTCOME: dict[str, Any] = {
    "type": "object",
    "required": ["uri", "status"],
    "properties": {
        "uri": {"type": "string"},
        "status": {
            "enum": ["published", "unchanged", "superseded", "replayed", "removed", "absent", "touched"],
            "description": (
                "published, touched, removed: subscribers are told. unchanged: the same was there. "
                "superseded: a version that is not older was there. replayed: this idempotency key was used "
                "for the same before. absent: there was nothing to remove."
            ),
        },
        "revision": {"type": "string", "description": "Where the resource stands; also its ETag."},
    },
    "example": {
        "uri": "docs://readme",
        "status": "published",
        "revision": "9f2c11ab.1796077397535778.5471c80d",
    },
}
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["reason", "message"],
            "properties": {
                "reason": {"type": "string", "description": "For programs; does not change."},
                "message": {"type": "string", "description": "For people: what is wrong and what to do."},
            },
        }
    },
    "example": {
        "error": {"reason": "invalid_contents", "message": "A resource's name is not empty; leave it out …"}
    },
}
_TEXT = {"type": "string"}
_WHOLE = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
_ABOUT: dict[str, Any] = {
    "name": {"type": "string", "description": "By default the last segment of the URI."},
    "title": _TEXT,
    "description": _TEXT,
    "size": {**_WHOLE, "description": "In bytes, before any encoding; never guessed."},
    "ttlMs": {**_WHOLE, "description": "How long clients may keep what they read."},
    "cacheScope": {"enum": ["public", "private"]},
    "version": {**_WHOLE, "description": "The publisher's own number; a late older one changes nothing."},
    "expiresIn": {"type": "number", "description": "Lifetime in seconds; without it the resource stays."},
}
_WAITS: dict[str, Any] = {
    "waitReplicas": {
        "type": "integer",
        "minimum": 1,
        "description": "How many of Redis' replicas must have it; else 503 not_replicated (and stored).",
    },
    "waitMs": {"type": "integer", "minimum": 1, "description": "How long to wait for them; 1000 by default."},
}
_ENTRY = {
    "type": "object",
    "properties": {
        "uri": _TEXT,
        "mimeType": _TEXT,
        "text": _TEXT,
        "blob": {"type": "string", "contentEncoding": "base64"},
    },
}
_RESOURCE: dict[str, Any] = {
    "type": "object",
    "required": ["uri"],
    "additionalProperties": False,
    "description": "Exactly one of text, blob, json and contents.",
    "properties": {
        "uri": _TEXT,
        "text": _TEXT,
        "blob": {"type": "string", "contentEncoding": "base64"},
        "json": {"description": "Any value; read as JSON text."},
        "contents": {"type": "array", "items": _ENTRY, "description": "Several entries of one resource."},
        **_ABOUT,
        "mimeType": {"type": "string", "description": "Kept as it is; without it there is none."},
        "annotations": {"type": "object"},
        "icons": {"type": "array", "items": {"type": "object"}},
        "scopes": {"type": "array", "items": _TEXT, "description": "Required to read or to hear of it."},
        "subjects": {
            "type": "array",
            "items": _TEXT,
            "description": "Who alone may read or hear of it; [] is nobody.",
        },
        "idempotencyKey": _TEXT,
        "expect": {"type": "string", "description": 'A revision, "exists" or "absent".'},
    },
}


def _json(schema: dict[str, Any], example: Any = None) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": schema}
    if example is not None:
        content["example"] = example
    return {"application/json": content}


def _responses(said: dict[str, Any], *refusals: int) -> dict[int | str, dict[str, Any]]:
    meanings = {
        400: "Something in the request must be changed.",
        403: "The credential does not allow publishing.",
        404: "There is no such resource.",
        408: "The body did not come in time.",
        409: "The idempotency key was used for something else.",
        412: "If-Match or If-None-Match did not hold.",
        413: "Over a size limit.",
        503: "Redis cannot answer now; repeat the request after Retry-After.",
    }
    answers: dict[int | str, dict[str, Any]] = {200: {"description": "Done.", "content": _json(said)}}
    for status in (400, 403, *refusals, 503):
        answers[status] = {"description": meanings[status], "content": _json(_ERROR)}
    return answers


def _header(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "schema": _TEXT, "description": description}


_KEY = _header("Idempotency-Key", "A repeated request with the same key is answered and does nothing.")
_MATCH = _header("If-Match", 'The revision that must be there (an ETag), or "*" for any.')
_NONE_MATCH = _header("If-None-Match", '"*": only if nothing is there.')
_IN_QUERY = [
    {
        "name": name,
        "in": "query",
        "schema": {key: value for key, value in schema.items() if key != "description"},
        "description": schema.get("description", "As resources/list shows it."),
    }
    for name, schema in {**_ABOUT, **_WAITS}.items()
] + [
    {
        "name": "scopes",
        "in": "query",
        "schema": _TEXT,
        "description": "Scopes required to read or to hear of it, separated by blanks.",
    },
]

_RESULTS = {
    "type": "object",
    "properties": {"results": {"type": "array", "items": {"anyOf": [_OUTCOME, _ERROR]}}},
}
_SHOWN = {
    "description": "With uri, one resource; without, a page of what resources/list shows.",
    "type": "object",
    "properties": {
        "resource": {"type": "object"},
        "contents": {"type": "array", "items": _ENTRY},
        "revision": _TEXT,
        "resources": {"type": "array", "items": {"type": "object"}},
        "nextCursor": _TEXT,
    },
}

PUT: dict[str, Any] = {
    "responses": _responses(_OUTCOME, 408, 409, 412, 413),
    "openapi_extra": {
        "parameters": [*_IN_QUERY, _KEY, _MATCH, _NONE_MATCH],
        "requestBody": {
            "description": "The contents. Content-Type becomes the mime type.",
            "content": {
                "text/markdown": {"schema": _TEXT, "example": "# Hello"},
                "*/*": {"schema": {"type": "string", "format": "binary"}},
            },
        },
    },
}
PUBLISH: dict[str, Any] = {
    "responses": _responses(_RESULTS, 408, 413),
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": _json(
                {
                    "type": "object",
                    "required": ["resources"],
                    "properties": {"resources": {"type": "array", "items": _RESOURCE}},
                },
                {
                    "resources": [
                        {
                            "uri": "docs://readme",
                            "text": "# Hello",
                            "mimeType": "text/markdown",
                            "version": 7,
                        },
                        {"uri": "config://app", "json": {"debug": False}},
                    ]
                },
            ),
        }
    },
}
TOUCH: dict[str, Any] = {
    "responses": _responses(_OUTCOME, 408, 409, 413),
    "openapi_extra": {
        "parameters": [_KEY],
        "requestBody": {
            "required": True,
            "content": _json(
                {"type": "object", "required": ["uri"], "properties": {"uri": _TEXT}},
                {"uri": "docs://readme"},
            ),
        },
    },
}
DELETE: dict[str, Any] = {
    "responses": _responses(_OUTCOME, 409, 412),
    "openapi_extra": {"parameters": [_KEY, _MATCH]},
}
GET: dict[str, Any] = {
    "responses": _responses(_SHOWN, 404),
    "openapi_extra": {
        "parameters": [
            {
                "name": "uri",
                "in": "query",
                "schema": _TEXT,
                "description": "Read this one instead of listing; percent-encoded once.",
            }
        ]
    },
}
