# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""boto's clients and errors: how one is made from options in each form, and what botocore's exceptions mean.

Does not own: what is said over the client (``boto_store``). Shared with s3fs, which speaks through botocore.
"""

from __future__ import annotations

import base64
import hashlib
import traceback
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gym_objstore.errors import Denied, Invalid, NotFound, ObjstoreError, Unusable
from gym_objstore.store import credentials
from gym_objstore.store.answers import Answer, Call, no_answer, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from gym_objstore.store.credentials import Place
    from gym_objstore.store.options import StoreOptions

_EXTRA = "pip install 'gym-objstore[aioboto3]', or use backend='obstore'"


def connect(options: StoreOptions) -> Any:
    """Return a new blocking client. Raises ``Invalid`` for options that boto does not take."""
    from botocore.config import Config

    chain = credentials.session(options)
    place = credentials.place(options, chain)
    return _client(chain, options, place, Config(**config(options, place)))


def connect_async(options: StoreOptions) -> AbstractAsyncContextManager[Any]:
    """Return a new client for the running loop, to be opened and closed there."""
    try:
        import aioboto3
        from aiobotocore.config import AioConfig
    except ImportError as error:
        raise Unusable(
            "the async form of the boto backend needs aioboto3", kind="missing_extra", hint=_EXTRA
        ) from error

    place = credentials.place(options, credentials.session(options))
    chain = credentials.session(options, aioboto3.Session)
    return _client(chain, options, place, AioConfig(**config(options, place)))  # type: ignore[no-any-return]


def _client(chain: Any, options: StoreOptions, place: Place, configuration: Any) -> Any:
    sign_bulk_removals(chain._session, place)  # noqa: SLF001 - aioboto3 has no public way
    try:
        return chain.client(
            "s3",
            region_name=place.region,
            endpoint_url=place.endpoint,
            verify=options.ca_bundle,
            config=configuration,
        )
    except ValueError as error:
        message = f"boto does not take these options, store={options.url}, cause={error}"
        raise Invalid(message, kind="bad_option") from error


def config(options: StoreOptions, place: Place) -> dict[str, Any]:
    """Return the arguments of a botocore ``Config``: one attempt, our timeouts, a pool of ``concurrency``.

    Raises ``Invalid`` for a CA bundle that botocore would fail to read only when it connects.
    """
    from urllib.request import proxy_bypass

    credentials.certificates(options)
    found: dict[str, Any] = {
        "s3": {"addressing_style": "path" if place.path_style else "virtual"},
        "max_pool_connections": options.concurrency,
        "connect_timeout": options.connect_timeout,
        "read_timeout": options.timeout,
        "retries": {"total_max_attempts": 1},
    }
    if place.custom:
        # The checksums that botocore adds since 2025 are refused by servers that do not know them.
        found |= dict.fromkeys(("request_checksum_calculation", "response_checksum_validation"), "when_required")
    if options.proxy and not proxy_bypass(urlsplit(place.endpoint or "").hostname or ""):
        found["proxies"] = dict.fromkeys(("http", "https"), options.proxy)
    return found


def sign_bulk_removals(core: Any, place: Place) -> None:
    """Have a botocore session add the digest that servers older than 2025 insist on; botocore sends a newer one."""
    if place.custom:
        core.register("before-sign.s3.DeleteObjects", _add_md5)


def _add_md5(request: Any, **_: object) -> None:
    digest = hashlib.md5(request.body, usedforsecurity=False).digest()
    request.headers["Content-MD5"] = base64.b64encode(digest).decode("ascii")


def end_circles(core: Any) -> None:
    """Have a botocore session end a listing whose page names the token again by which it was asked for.

    s3fs pages by itself, and would go on for ever; botocore's own pages end so, too.
    """
    core.register("before-parameter-build.s3.ListObjectsV2", _remember_token)
    core.register("after-call.s3.ListObjectsV2", _require_new_token)


def _remember_token(params: Mapping[str, Any], context: dict[str, Any], **_: object) -> None:
    context[_ASKED_BY] = params.get("ContinuationToken")


def _require_new_token(parsed: Mapping[str, Any], context: Mapping[str, Any], **_: object) -> None:
    from botocore.exceptions import PaginationError

    token = parsed.get("NextContinuationToken")
    if token and token == context.get(_ASKED_BY):
        raise PaginationError(message="the listing goes in a circle")


_ASKED_BY = "gym_objstore_asked_by"
_KINDS = {
    "SSLError": "tls",
    "ConnectTimeoutError": "unreachable",
    "EndpointConnectionError": "unreachable",
    "ProxyConnectionError": "unreachable",
    "ReadTimeoutError": "timeout",
    "TimeoutError": "timeout",
    "HTTPClientError": "connection_lost",
    "IncompleteReadError": "connection_lost",
    "ClientPayloadError": "connection_lost",
    "ProtocolError": "connection_lost",
    "OSError": "connection_lost",
    "ResponseParserError": "bad_answer",
    "PaginationError": "bad_answer",
    "NoCredentialsError": "no_credentials",
    "PartialCredentialsError": "no_credentials",
    "SSOError": "expired_token",
    "TokenRetrievalError": "expired_token",
    "CredentialRetrievalError": "credentials_failed",
    "MetadataRetrievalError": "credentials_failed",
    "FileNotFoundError": "credentials_failed",  # the program or file that gives them; an absent object is an answer
    "PermissionError": "credentials_failed",
}
"""What the exceptions of botocore, urllib3 and aiohttp mean that carry no answer, the narrowest class first."""


def translated(error: BaseException, call: Call) -> ObjstoreError | None:
    """Return the error of this package that one of botocore's means, None for one that is not about storage.

    The variables of the client's frames are forgotten: among them is the request with its session token.
    """
    _forget_variables(error)
    if (answer := answered(error)) is not None:
        return refusal(answer, call)
    names = [one.__name__ for one in type(error).__mro__]
    if kind := next((_KINDS[name] for name in names if name in _KINDS), None):
        return no_answer(kind, call, error)
    if "BotoCoreError" in names:
        return Invalid(f"{call.operation} failed: {error}, {call.where}", kind="bad_option", key=call.key)
    return None


def _forget_variables(error: BaseException | None) -> None:
    """Leave a traceback where it was and nothing in it, for those who report errors with all variables."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def answered(error: BaseException) -> Answer | None:
    """Return the server's answer that a botocore error carries, None where there was none."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return None
    said = response.get("Error", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(said.get("Code", ""))
    return Answer(status, "" if code.isdigit() else code, str(said.get("Message", "")) if not code.isdigit() else "")


def bulk_removal(bucket: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a request that removes whole keys of a bucket."""
    return {"Bucket": bucket, "Delete": {"Objects": [{"Key": key} for key in keys]}}


def removed(answer: Mapping[str, Any], count: int, root: str, call: Call) -> None:
    """Raise the error that the answer to a bulk removal of ``count`` keys lists. Absence is no error.

    What may be repeated comes before what was refused: the repetition meets the refusals again.
    """
    failures = answer.get("Errors", ())
    if len(answer.get("Deleted", ())) + len(failures) < count:
        raise no_answer("bad_answer", call, "an answer that leaves objects out")
    errors = [
        refusal(
            Answer(0, one.get("Code", ""), one.get("Message", "")),
            call._replace(key=one.get("Key", "").removeprefix(root)),
        )
        for one in failures
    ]
    errors = [one for one in errors if not isinstance(one, NotFound)]
    if errors:
        raise min(errors, key=lambda one: isinstance(one, Denied))


def retry_after(error: BaseException | None) -> float:
    """Return how many seconds the server asked to wait before the next attempt, 0 where it did not say."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            text = response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("retry-after", "")
            return float(text) if text.isdecimal() else 0.0
        error = error.__cause__
    return 0.0
