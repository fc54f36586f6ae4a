# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The answers a proxy gives itself: plain documents, and errors in the shape that each API's clients read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from gym_objstore.control_routes import Scope, Send
    from gym_objstore.http_exchange import Headers

_ANTHROPIC_TYPES = {400: "invalid_request_error", 401: "authentication_error", 504: "timeout_error"}
_OPENAI_TYPES = {400: "invalid_request_error", 401: "authentication_error"}
_HEADERS_OF = {401: [(b"www-authenticate", b"Bearer")]}


async def refuse(scope: Scope, send: Send, status: int, kind: str, message: str) -> None:
    """Answer with an error that the SDK of the path's API understands."""
    document = error_document(scope["path"], status, kind, message)
    await answer(send, status, orjson.dumps(document), b"application/json", _HEADERS_OF.get(status))


def error_document(path: str, status: int, kind: str, message: str) -> dict[str, Any]:
    """Return an error in the shape of Anthropic Messages for that path, else in OpenAI's."""
    text = f"{message} ({kind})"
    if path.rstrip("/").endswith("/messages"):
        return {"type": "error", "error": {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": text}}
    kinds = {"type": _OPENAI_TYPES.get(status, "upstream_error"), "code": kind}
    return {"error": {"message": text, "param": None, **kinds}}


async def answer(send: Send, status: int, body: bytes, content_type: bytes, headers: Headers | None = None) -> None:
    """Send a whole answer."""
    fixed = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})
