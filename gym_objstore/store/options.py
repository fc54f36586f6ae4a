# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""The settings of a store: plain values, each with a note of where it came from.

Owns: which options exist, their environment variables, defaults and limits, and that a secret among them is
never shown or pickled. Does not own: what they mean to a client (each backend), nor the credential chain
behind them (``credentials``). Nothing here does I/O or imports a client.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gym_objstore.errors import Invalid, Unusable
from gym_objstore.store.location import Location, parse_url

BACKENDS = ("auto", "obstore", "boto", "fsspec")

_OURS = "GYM_OBJSTORE_"
_AWS_NAMES: Mapping[str, tuple[str, ...]] = {
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "ca_bundle": ("AWS_CA_BUNDLE",),
}
_SECRETS = ("secret_access_key", "session_token")
_KEYS = ("access_key_id", *_SECRETS)
_FLAGS: Mapping[str, bool] = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
_CONCURRENCY_LIMIT = 4096
_SECONDS_LIMIT = 86_400.0


class Masked:
    """A secret text. It shows as ``***``, is read only through ``reveal`` and is never pickled or copied."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret itself, for the call that needs it; keep it in no variable."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Masked) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[Any, ...]:
        raise Unusable("a secret is never pickled or copied", kind="secret")


class Setting(NamedTuple):
    """An effective setting as a person may see it: a secret's value is ``***``."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How to reach a store. Equal options may share one client; they may be logged and pickled.

    ``None`` means that the client or the AWS configuration decides. Times are in seconds: ``connect_timeout``
    for a connection to open, ``timeout`` for a request to be sent and the server's longest silence after it,
    ``retry_seconds`` for the budget within which a failed operation is repeated. ``concurrency`` is the
    number of requests in flight of one event loop, or of all threads of the blocking form, and the size of
    the connection pool.

    A pickle leaves explicit credentials out: the process that reads it takes them from its own environment.
    """

    url: str
    backend: str = "auto"
    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    profile: str | None = None
    ca_bundle: str | None = None
    proxy: str | None = None
    concurrency: int = 128
    connect_timeout: float = 5.0
    timeout: float = 30.0
    retry_seconds: float = 60.0
    access_key_id: str | None = None
    secret_access_key: Masked | None = None
    session_token: Masked | None = None
    sources: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def of(cls, url: str | None = None, **given: object) -> StoreOptions:
        """Read the options from arguments and, where one is absent, from the environment.

        ``GYM_OBJSTORE_<NAME>`` stands for every option but credentials; for S3 the variables of AWS come next.
        Raises ``Invalid`` for a missing or malformed url and for unknown or unusable options, before any I/O.
        """
        given = _masked(given)
        if unknown := sorted(given.keys() - OPTIONS.keys()):
            raise Invalid(
                f"unknown store option, option={', '.join(unknown)}",
                kind="bad_option",
                hint=f"beside url, and run_id and spill_dir of a component, the options are {', '.join(OPTIONS)}",
            )
        found = {"url": _url(url)}
        aws = parse_url(found["url"][0]).scheme == "s3"
        for name in OPTIONS:
            if (one := _find(name, given.get(name), aws=aws)) is not None:
                found[name] = one
        values = {name: value for name, (value, _) in found.items()}
        return cls(**values, sources=tuple((name, source) for name, (_, source) in found.items()))

    def __post_init__(self) -> None:
        _check_credentials(self)

    @property
    def location(self) -> Location:
        """The bucket and the prefix that the url names."""
        return parse_url(self.url)

    def describe(self) -> tuple[Setting, ...]:
        """Return every effective setting and where it came from, secrets masked."""
        sources = dict(self.sources)
        names = ("url", *OPTIONS)
        return tuple(Setting(name, _shown(getattr(self, name)), sources.get(name, "default")) for name in names)

    def __reduce__(self) -> tuple[Any, ...]:
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _KEYS}
        if self.secret_access_key is not None:
            dropped = dict.fromkeys(_KEYS, "left out of the pickle")
            plain["sources"] = tuple({**dict(self.sources), **dropped}.items())
        return _unpickled, (plain,)


def _unpickled(plain: dict[str, Any]) -> StoreOptions:
    return StoreOptions(**plain)


def _masked(given: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments with secrets masked at once, so that no traceback's variables show them."""
    return {
        name: Masked(value) if name in _SECRETS and isinstance(value, str) else value for name, value in given.items()
    }


def _url(url: str | None) -> tuple[Any, str]:
    if url is not None:
        return parse_url(url).url, "argument"
    if text := os.environ.get(f"{_OURS}URL"):
        return parse_url(text).url, f"environment variable {_OURS}URL"
    raise Invalid(
        "a store url is missing",
        kind="no_url",
        hint=f"pass url= or set {_OURS}URL, for example s3://bucket/prefix or file:///shared/folder",
    )


def _find(name: str, argument: object, *, aws: bool) -> tuple[Any, str] | None:
    """Return an option's value and source, None where neither the caller nor the environment names it."""
    if argument is not None:
        return OPTIONS[name](name, argument), "argument"
    if name in _KEYS:
        return None
    for variable in (f"{_OURS}{name.upper()}", *(_AWS_NAMES.get(name, ()) if aws else ())):
        if text := os.environ.get(variable):
            return OPTIONS[name](variable, text), f"environment variable {variable}"
    return None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _bad(name, value, "a text that is not empty")
    return value


def _secret(name: str, value: object) -> Masked:
    if not isinstance(value, Masked) or not value.reveal():
        raise Invalid(f"store option must be a text that is not empty, option={name}", kind="bad_option")
    return value


def _backend(name: str, value: object) -> str:
    if value not in BACKENDS:
        raise _bad(name, value, f"one of {', '.join(BACKENDS)}")
    return str(value)


def _flag(name: str, value: object) -> bool:
    if isinstance(value, str):
        value = _FLAGS.get(value.strip().lower(), value)
    if not isinstance(value, bool):
        raise _bad(name, value, "true or false")
    return value


def _count(name: str, value: object) -> int:
    found = _number(name, value)
    if not found.is_integer() or not 1 <= found <= _CONCURRENCY_LIMIT:
        raise _bad(name, value, f"a whole number from 1 to {_CONCURRENCY_LIMIT}")
    return int(found)


def _duration(name: str, value: object) -> float:
    found = _number(name, value)
    if not 0 < found <= _SECONDS_LIMIT:
        raise _bad(name, value, f"seconds, more than 0 and at most {_SECONDS_LIMIT:.0f}")
    return found


def _budget(name: str, value: object) -> float:
    return 0.0 if _number(name, value) == 0 else _duration(name, value)


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise TypeError(name)
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise _bad(name, value, "a number") from None


def _web_address(name: str, value: object) -> str:
    """Return an endpoint or proxy address. One with a password is refused, and not repeated in the error."""
    text = _text(name, value)
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable, parts = False, urlsplit("")
    if "@" in text:
        raise Invalid(
            f"an address must not contain a user or password, option={name}",
            kind="secret_in_url",
            hint="pass credentials as options of their own; set a proxy with a password in HTTPS_PROXY",
        )
    if not usable or parts.query or parts.fragment:
        raise _bad(name, value, "an address such as https://host:9000")
    return text.rstrip("/")


def _bad(name: str, value: object, wanted: str) -> Invalid:
    return Invalid(f"store option must be {wanted}, option={name}, value={value!r:.80}", kind="bad_option")


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _check_credentials(options: StoreOptions) -> None:
    for name in _SECRETS:
        if not isinstance(getattr(options, name), Masked | None):
            raise Invalid(f"a secret must be masked, option={name}", kind="bad_option", hint="use StoreOptions.of")
    if (options.access_key_id is None) != (options.secret_access_key is None):
        raise Invalid(
            "access_key_id and secret_access_key must be given together",
            kind="bad_option",
            hint="leave out both to use the environment or the AWS configuration",
        )
    if options.session_token is not None and options.access_key_id is None:
        raise Invalid("session_token needs access_key_id and secret_access_key too", kind="bad_option")


OPTIONS: Mapping[str, Callable[[str, object], Any]] = {
    "backend": _backend,
    "endpoint": _web_address,
    "region": _text,
    "path_style": _flag,
    "profile": _text,
    "ca_bundle": _text,
    "proxy": _web_address,
    "concurrency": _count,
    "connect_timeout": _duration,
    "timeout": _duration,
    "retry_seconds": _budget,
    "access_key_id": _text,
    "secret_access_key": _secret,
    "session_token": _secret,
}
"""Every option beside the url and how its value is read, in the order ``describe`` shows them."""
