# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""How a model call says which rollout it belongs to: the path prefix ``/ng-rollout/<id>``.

A caller puts the prefix before the ordinary API path, with ``/training-token-capture`` behind the id where
tokens are recorded too; a model server strips it again before routing. This file owns that grammar, the
API paths that are observed, and the rollout id a rollout record implies. It does no I/O, and what is done
with the id afterwards is not its business: stores escape ids (``ids.segment``) and trust none.

Reading is lenient (any path segment is an id), building is strict: only an id that survives the trip
through a URL unchanged may be sent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from gym_objstore.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

Dialect = Literal["responses", "chat", "messages"]
"""OpenAI Responses, OpenAI Chat Completions, Anthropic Messages."""

DIALECTS: Mapping[str, Dialect] = {
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat",
    "/v1/messages": "messages",
}
"""The observed API paths, after the prefix is stripped. Everything else is forwarded and not captured."""

PREFIX = "/ng-rollout"
TOKEN_CAPTURE = "/training-token-capture"  # noqa: S105 - a path segment

SCOPE_KEY = "gym_objstore.route"
"""Where a middleware that strips the prefix leaves the parsed ``Route`` in the ASGI scope, for those within."""

CALL_KEY = "gym_objstore.call"
"""Where a middleware that records a call leaves its id in the ASGI scope, for those within that record it too."""

_PATH = re.compile(rf"(?P<prefix>{PREFIX}/(?P<id>[^/]+)(?P<tokens>{TOKEN_CAPTURE}(?=/))?)(?P<path>/.*)", re.DOTALL)
_ROLLOUT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SCHEMES = ("http", "https")


class Route(NamedTuple):
    """A prefixed path taken apart: ``prefix + path`` is the path that was parsed."""

    rollout_id: str
    token_capture: bool
    prefix: str
    path: str

    @property
    def dialect(self) -> Dialect | None:
        """The API this path calls; ``None`` for one that is not observed."""
        return DIALECTS.get(self.path)

    def raw_path(self, raw: bytes) -> bytes:
        """Return the undecoded path without its prefix, from the undecoded path with it.

        Where the two forms do not correspond (an escaped slash in the id), the decoded path is encoded.
        """
        segments = raw.split(b"?", 1)[0].split(b"/")
        rest = b"/" + b"/".join(segments[self.prefix.count("/") + 1 :])
        same = unquote(rest.decode("latin-1")) == self.path
        return rest if same else self.path.encode("utf-8", "surrogatepass")

    def location(self, location: str, host: str) -> str:
        """Return a redirect's target with the prefix put back, so that the next request is still correlated.

        Targets on another host, relative ones and ones that carry the prefix already are left alone.
        ``host`` is the request's Host header.
        """
        try:
            parts = urlsplit(location)
        except ValueError:
            return location
        elsewhere = parts.netloc not in ("", host)
        if elsewhere or not parts.path.startswith("/") or unquote(parts.path).startswith(f"{self.prefix}/"):
            return location
        # The id is decoded, and may hold anything: a line end would begin another header.
        prefix = quote(self.prefix.encode("utf-8", "surrogatepass"))
        return urlunsplit(parts._replace(path=prefix + parts.path))


def parse_path(path: str) -> Route | None:
    """Take a decoded URL path apart; ``None`` if it carries no rollout prefix before an API path."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    return Route(found["id"], found["tokens"] is not None, found["prefix"], found["path"])


def route_of(scope: Mapping[str, Any]) -> Route | None:
    """Return the rollout route of an ASGI request, also where a middleware outside has stripped the prefix."""
    return scope[SCOPE_KEY] if SCOPE_KEY in scope else parse_path(scope["path"])


def survives_url(rollout_id: object) -> bool:
    """Whether an id may be sent in a path: ASCII letters, digits and ``. _ -``, first a letter or digit."""
    return isinstance(rollout_id, str) and _ROLLOUT_ID.fullmatch(rollout_id) is not None


def _require_survivor(rollout_id: Any) -> str:
    if survives_url(rollout_id):
        return str(rollout_id)
    msg = (
        "a rollout id in a URL must be letters, digits, dots, dashes or underscores, "
        f"starting with a letter or digit, rollout_id={rollout_id!r}"
    )
    raise Invalid(msg, kind="bad_rollout_id")


def rollout_prefix(rollout_id: str | None, *, token_capture: bool = False) -> str:
    """Return the path prefix of a rollout; empty for no id, so that such a call is forwarded uncaptured.

    Raises ``Invalid`` for an id that would not arrive as it was sent.
    """
    if not rollout_id:
        return ""
    return f"{PREFIX}/{_require_survivor(rollout_id)}{TOKEN_CAPTURE if token_capture else ''}"


def rollout_url(server_url: str, rollout_id: str | None, *, token_capture: bool = False) -> str:
    """Return a model server's root URL with the rollout prefix: the base URL of the Anthropic SDK.

    ``server_url`` may end in ``/`` or in the ``/v1`` other clients want. Raises ``Invalid`` for a URL that is
    not http, carries a prefix already, or has a query.
    """
    _require_root(server_url)
    root = server_url.rstrip("/").removesuffix("/v1").rstrip("/")
    return root + rollout_prefix(rollout_id, token_capture=token_capture)


def _require_root(server_url: str) -> None:
    """Raise ``Invalid`` for what is not a server's root. The message leaves out what may be a secret."""
    try:
        parts = urlsplit(server_url)
        shown = f"{parts.scheme}://{parts.hostname}{parts.path}"
    except ValueError:
        parts, shown = urlsplit(""), "unreadable"
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.query or parts.fragment:
        msg = f"a model server's URL must be http(s)://host[:port][/path] without a query, url={shown}"
        raise Invalid(msg, kind="bad_url")
    if f"{PREFIX}/" in f"{parts.path}/":
        msg = f"the URL carries a rollout prefix already, pass the server's root, url={shown}"
        raise Invalid(msg, kind="bad_url")


def openai_base_url(server_url: str, rollout_id: str | None, *, token_capture: bool = False) -> str:
    """Return the base URL of the OpenAI SDK, which appends ``/chat/completions`` or ``/responses``."""
    return rollout_url(server_url, rollout_id, token_capture=token_capture) + "/v1"


def follow(inbound_path: str, url_path: str) -> str:
    """Return a downstream path that keeps the prefix of the request being served, if it had one."""
    route = parse_path(inbound_path)
    return (route.prefix if route else "") + url_path


def rollout_id_of(record: Mapping[str, Any]) -> str | None:
    """Return the rollout id a rollout record implies; ``None`` if it names neither an id nor its indices.

    ``_ng_rollout_id`` wins over ``<_ng_task_index>-<_ng_rollout_index>``; ``-a<n>`` follows for
    ``_ng_attempt_index`` above zero. Raises ``Invalid`` for an explicit id that could not be a path segment
    and for an attempt that is no number.
    """
    explicit = record.get("_ng_rollout_id")
    task, rollout = record.get("_ng_task_index"), record.get("_ng_rollout_index")
    if explicit is None and (task is None or rollout is None):
        return None
    rollout_id = f"{task}-{rollout}" if explicit is None else _require_survivor(explicit)
    return f"{rollout_id}{_attempt_suffix(record.get('_ng_attempt_index'))}"


def _attempt_suffix(attempt: Any) -> str:
    try:
        number = int(attempt or 0)
    except (TypeError, ValueError, OverflowError) as error:
        msg = f"_ng_attempt_index must be a whole number, attempt={attempt!r}"
        raise Invalid(msg, kind="bad_rollout_id") from error
    return f"-a{number}" if number > 0 else ""
