# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""obstore's clients and errors: how one is made from options, and what its exceptions mean.

Does not own: what is said over the client (``obstore_store``).
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gym_objstore.errors import Invalid, ObjstoreError
from gym_objstore.store import boto_client, credentials
from gym_objstore.store.answers import Answer, Call, no_answer, refusal
from gym_objstore.store.exit_guard import guard_exit

if TYPE_CHECKING:
    from gym_objstore.store.options import StoreOptions

FOREIGN_KEY = "foreign_key"
"""The kind of error that one object of a name obstore cannot express makes of a whole listing."""

_WHOLE_REQUEST = timedelta(minutes=30)  # a large body may take long, as long as it goes on
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>|\(code: (\w{1,100})\)")
_SAID = re.compile(r"<Message>([^<]+)</Message>")
_DELETED_KEY = re.compile(r"DeleteObjects request failed for key (.+?): ")
_SILENCES = (
    # The order matters: a failed handshake is reported as a failed connection too.
    (re.compile(r"SSOTokenLoadError|UnauthorizedSSOTokenError|TokenRetrievalError"), "expired_token"),
    (re.compile(r"External AWS credential provider|credential"), "credentials_failed"),
    (re.compile(r"certificate|InvalidMessage|InvalidContentType|TlsError|HandshakeFailure|InvalidCertificate"), "tls"),
    (re.compile(r"kind: Timeout|TimedOut"), "timeout"),
    (re.compile(r"kind: Connect\b"), "unreachable"),
    (re.compile(r"kind: Interrupted|SendRequest|body error|UnexpectedEof"), "connection_lost"),
)


def connect(options: StoreOptions, *, bulk: bool = True) -> Any:
    """Return a new client for the options' bucket and prefix; ``bulk=False`` removes objects one by one.

    Raises ``Invalid`` for options that the client does not take, and what finding credentials raises.
    """
    from obstore.exceptions import BaseError

    guard_exit()
    try:
        return _connect_s3(options, bulk=bulk) if options.location.scheme == "s3" else _connect_other(options)
    except ObjstoreError:
        raise
    except (BaseError, ValueError) as error:
        message = f"obstore does not take these options, store={options.url}, cause={str(error).splitlines()[0]}"
        raise Invalid(message, kind="bad_option") from error
    except Exception as error:
        # Such as a file that is not found, which must not be taken for an absent object.
        if (found := boto_client.translated(error, Call("open", "", f"store={options.url}"))) is None:
            raise
        raise found from error


def _connect_other(options: StoreOptions) -> Any:
    """Return a client for Google's or Azure's storage, which takes credentials from its own environment."""
    from obstore.store import AzureStore, GCSStore

    scheme, bucket, prefix = options.location
    clouds: dict[str, tuple[Any, str]] = {"gs": (GCSStore, "base_url"), "az": (AzureStore, "endpoint")}
    cloud, name = clouds[scheme]
    return cloud(
        bucket,
        prefix=prefix or None,
        config={name: options.endpoint} if options.endpoint else None,
        client_options=_http(options, options.endpoint),
        retry_config=_NO_RETRIES,
    )


def _connect_s3(options: StoreOptions, *, bulk: bool) -> Any:
    from obstore.store import S3Store

    chain = credentials.session(options) if credentials.uses_chain(options) else None
    place = credentials.place(options, chain)
    _, bucket, prefix = options.location
    config: dict[str, Any] = {
        "region": place.region,
        "virtual_hosted_style_request": not place.path_style,
        "disable_bulk_delete": not bulk,
    }
    if bucket.endswith("--x-s3"):
        config["s3_express"] = True
    if place.endpoint:
        endpoint = place.endpoint if place.path_style else _with_bucket(place.endpoint, bucket)
        # Both names, because a variable for the second one would win over an argument for the first.
        config |= {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}
    return S3Store(
        bucket,
        prefix=prefix or None,
        config=config,  # type: ignore[arg-type] # built from parts
        client_options=_http(options, place.endpoint),
        retry_config=_NO_RETRIES,
        credential_provider=credentials.provider(options, chain),
    )


_NO_RETRIES: Any = {"max_retries": 0}


def _with_bucket(endpoint: str, bucket: str) -> str:
    parts = urlsplit(endpoint)
    return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()


def _http(options: StoreOptions, endpoint: str | None) -> Any:
    config: dict[str, Any] = {
        "allow_http": (endpoint or "").startswith("http://"),
        "connect_timeout": timedelta(seconds=options.connect_timeout),
        "read_timeout": timedelta(seconds=options.timeout),
        "timeout": _WHOLE_REQUEST,
    }
    if (certificates := credentials.certificates(options)) is not None:
        config["root_certificate"] = certificates
    if options.proxy:
        config |= {"proxy_url": options.proxy, "proxy_excludes": no_proxy()}
    return config


def no_proxy() -> str:
    """Return the hosts that no proxy is used for, as the environment lists them."""
    return os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""


def translated(error: Exception, call: Call, root: str) -> ObjstoreError:
    """Return the error of this package that one of obstore's means. Its text is all that obstore tells.

    ``root`` is the prefix that obstore puts before every key.
    """
    from obstore.exceptions import BaseError

    if not isinstance(error, BaseError | OSError | ValueError):
        raise error
    text = str(error)
    if found := _DELETED_KEY.search(text):
        call = call._replace(key=found.group(1).removeprefix(root))
    if "redirect without LOCATION" in text:
        return refusal(Answer(301), call)
    if answer := _answer(text):
        return refusal(answer, call)
    return _silence(error, text, call)


def _answer(text: str) -> Answer | None:
    status, code, said = _STATUS.search(text), _CODE.search(text), _SAID.search(text)
    if not status and not code:
        return None
    named = (code.group(1) or code.group(2)) if code else ""
    if named == "404":  # one object of a bulk removal, from Azure
        named = "NoSuchKey"
    return Answer(int(status.group(1)) if status else 0, named, said.group(1).splitlines()[0] if said else "")


def _silence(error: Exception, text: str, call: Call) -> ObjstoreError:
    cause = text.partition("\n\nDebug source:")[0]
    if type(error).__name__ == "InvalidPathError":
        return Invalid(f"{call.operation} failed: {cause}, {call.where}", kind=FOREIGN_KEY, key=call.key)
    if isinstance(error, FileNotFoundError):
        return refusal(Answer(404, "NoSuchKey"), call)
    kind = next((kind for pattern, kind in _SILENCES if pattern.search(text)), "bad_answer")
    return no_answer(kind, call, cause)
