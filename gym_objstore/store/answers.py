# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What a server's refusal, or its silence, means to a caller, and what a person should do next.

Owns: the table from S3-style error codes and HTTP statuses to this package's errors, the same for every
client. Does not own: how a client reports an answer; each backend reads its own client's exceptions.
"""

from __future__ import annotations

from typing import NamedTuple

from gym_objstore.errors import Denied, Invalid, NotFound, ObjstoreError, Unavailable

HEAD = "head"
"""The operation whose answers carry no body, so that a 404 has no code."""

LIST = "list"
"""The operation that names no object, so that none can be absent."""

BAD_RANGE = "bad_range"
"""The kind of error for a range that begins where the object has ended."""

NOT_SUPPORTED = "not_supported"
"""The kind of error for an operation that this storage does not have."""

EXPIRED = "expired_token"
"""The kind of error for credentials that have expired; a backend then reads them anew for the next attempt."""

FULL = "disk_full"
"""The kind of error for a storage without room, which is not waited for."""

_SAID_LIMIT = 200


class Call(NamedTuple):
    """Which operation on which object of which store went wrong; ``where`` is ``name=value`` text."""

    operation: str
    key: str
    where: str


class Answer(NamedTuple):
    """What a server said: the HTTP status and, where there was a body, its error code and message."""

    status: int
    code: str = ""
    said: str = ""


class _Meaning(NamedTuple):
    error: type[ObjstoreError]
    kind: str
    text: str
    hint: str = ""


_ABSENT = _Meaning(NotFound, "notfound", "no such object")
_NO_LISTING = _Meaning(
    NotFound, "notfound", "there is nothing to list", "endpoint= is the server's address, without the bucket"
)
_NO_BUCKET = _Meaning(
    Invalid, "no_such_bucket", "the bucket does not exist", "create the bucket, or correct url= or endpoint="
)
_DENIED = _Meaning(
    Denied,
    "access_denied",
    "the storage refused access",
    "see which identity is used with 'gym-objstore doctor', and what it may do below this prefix",
)
_UNKNOWN_KEY = _Meaning(
    Denied,
    "bad_credentials",
    "the storage does not know the access key",
    "check the access key id, and that it belongs to this endpoint",
)
_WRONG_SECRET = _Meaning(
    Denied, "bad_credentials", "the secret does not fit the access key", "check the secret access key"
)
_EXPIRED = _Meaning(
    Denied,
    EXPIRED,
    "the credentials have expired",
    "renew them, for example with 'aws sso login'; they are read again at the next attempt",
)
_SKEW = _Meaning(
    Invalid, "clock_skew", "this machine's clock differs too much from the storage's", "synchronize the clock (NTP)"
)
_REGION = _Meaning(Invalid, "wrong_region", "the bucket is in another region", "set region= to the bucket's region")
_THROTTLED = _Meaning(Unavailable, "throttled", "the storage asks for fewer requests", "lower concurrency=")
_SERVER = _Meaning(Unavailable, "server_error", "the storage failed")
_TIMEOUT = _Meaning(
    Unavailable, "timeout", "the storage did not answer in time", "check the network, or raise timeout="
)
_FULL = _Meaning(Unavailable, FULL, "the storage is full", "free space or raise the quota")
_TOO_LARGE = _Meaning(Invalid, "too_large", "the object is larger than the storage takes")
_BAD_KEY = _Meaning(Invalid, "bad_key", "the storage takes no object of this name", "shorten the url's prefix")
_BAD_RANGE = _Meaning(Invalid, BAD_RANGE, "the object ends before the range")
_UNSUPPORTED = _Meaning(Invalid, NOT_SUPPORTED, "the storage does not support the operation")
_STRANGE = _Meaning(
    Unavailable,
    "bad_answer",
    "the answer is not one of an object store",
    "check that endpoint= is an S3 endpoint and that no proxy answers in its place",
)
_NO_CREDENTIALS = _Meaning(
    Invalid,
    "no_credentials",
    "no credentials were found",
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile; an explicit secret is never pickled, so a "
    "process that was sent a store needs them in its own environment",
)
_CREDENTIALS = _Meaning(
    Unavailable,
    "credentials_failed",
    "the credentials could not be fetched",
    "run 'aws sts get-caller-identity' with the same profile",
)
_UNREACHABLE = _Meaning(Unavailable, "unreachable", "the endpoint cannot be reached", "check endpoint= and the network")
_CUT = _Meaning(Unavailable, "connection_lost", "the connection broke before the answer was whole")
_TLS = _Meaning(
    Invalid,
    "tls",
    "no trusted TLS connection can be made",
    "set ca_bundle= for a private authority; write http:// in endpoint= only for a server without TLS",
)

_BY_CODE = {
    **dict.fromkeys(("NoSuchKey", "NoSuchVersion", "BlobNotFound"), _ABSENT),
    **dict.fromkeys(("NoSuchBucket", "ContainerNotFound", "InvalidBucketName"), _NO_BUCKET),
    **dict.fromkeys(("AccessDenied", "AllAccessDisabled", "AuthorizationFailure"), _DENIED),
    **dict.fromkeys(("InvalidAccessKeyId", "InvalidClientTokenId", "InvalidToken"), _UNKNOWN_KEY),
    **dict.fromkeys(("SignatureDoesNotMatch", "AuthenticationFailed"), _WRONG_SECRET),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"), _EXPIRED),
    "RequestTimeTooSkewed": _SKEW,
    **dict.fromkeys(("PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException"), _REGION),
    **dict.fromkeys(("SlowDown", "TooManyRequests", "ServerBusy", "RequestLimitExceeded", "Throttling"), _THROTTLED),
    **dict.fromkeys(("RequestTimeout", "OperationTimedOut"), _TIMEOUT),
    **dict.fromkeys(("QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"), _FULL),
    **dict.fromkeys(("InternalError", "ServiceUnavailable", "XMinioServerNotInitialized"), _SERVER),
    "EntityTooLarge": _TOO_LARGE,
    "InvalidRange": _BAD_RANGE,
    **dict.fromkeys(("KeyTooLongError", "InvalidURI", "XMinioInvalidObjectName"), _BAD_KEY),
    **dict.fromkeys(("NotImplemented", "MethodNotAllowed", "UnsupportedOperation", "MissingContentMD5"), _UNSUPPORTED),
    "XMinioParentIsObject": _BAD_KEY,
}
_BY_STATUS = {
    **dict.fromkeys((301, 302, 307, 308), _REGION),
    **dict.fromkeys((401, 403, 407), _DENIED),
    405: _UNSUPPORTED,
    408: _TIMEOUT,
    413: _TOO_LARGE,
    416: _BAD_RANGE,
    429: _THROTTLED,
    501: _UNSUPPORTED,
    503: _THROTTLED,
    504: _TIMEOUT,
    507: _FULL,
}
_SILENCES = {
    one.kind: one
    for one in (_UNREACHABLE, _TIMEOUT, _CUT, _TLS, _STRANGE, _NO_CREDENTIALS, _CREDENTIALS, _EXPIRED, _FULL)
}


def refusal(answer: Answer, call: Call) -> ObjstoreError:
    """Return the error that an answer other than success means."""
    said = f", said={answer.said:.{_SAID_LIMIT}}" if answer.said else ""
    return _error(_meaning(answer, call), call, f", status={answer.status}, code={answer.code or 'none'}{said}")


def no_answer(kind: str, call: Call, detail: object) -> ObjstoreError:
    """Return the error for a request without a usable answer: one of the kinds of silence."""
    return _error(_SILENCES[kind], call, f", cause={detail!s:.{_SAID_LIMIT}}")


def _meaning(answer: Answer, call: Call) -> _Meaning:
    if found := _BY_CODE.get(answer.code):
        return _NO_LISTING if found is _ABSENT and call.operation == LIST else found
    if answer.code == "AuthorizationHeaderMalformed" and "region" in answer.said:
        return _REGION
    if answer.status == 404 and call.operation == HEAD:  # noqa: PLR2004 - the HTTP status itself
        return _ABSENT
    if found := _BY_STATUS.get(answer.status):
        return found
    if answer.status >= 500:  # noqa: PLR2004
        return _SERVER
    return _DENIED._replace(kind="refused", text="the storage refused the request") if answer.code else _STRANGE


def _error(meaning: _Meaning, call: Call, details: str) -> ObjstoreError:
    message = f"{call.operation} failed: {meaning.text}, {call.where}{details}"
    return meaning.error(message, kind=meaning.kind, key=call.key, hint=meaning.hint)
