# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Who the S3 backends act as, whom they trust, and where the AWS configuration says the store is.

Owns: the choice between explicit credentials, the environment and boto3's chain (profiles, SSO, assumed
roles, credential processes, web identities, instances), and what only the AWS configuration file knows.
Does not own: fetching and refreshing, which is boto3's.
"""

from __future__ import annotations

import os
from datetime import UTC, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from gym_objstore.errors import Invalid
from gym_objstore.store.answers import Call, no_answer
from gym_objstore.store.scopes import PerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from gym_objstore.store.options import Masked, StoreOptions

DEFAULT_REGION = "us-east-1"

_LIFETIME = timedelta(minutes=10)
"""How long obstore keeps what the chain gave it; it asks again when less than five minutes of that are left."""


class Place(NamedTuple):
    """How an S3 store is addressed. ``endpoint`` is None for AWS itself."""

    endpoint: str | None
    region: str
    path_style: bool

    @property
    def custom(self) -> bool:
        """Whether the endpoint is a server other than AWS."""
        return self.endpoint is not None and not (urlsplit(self.endpoint).hostname or "").endswith(
            (".amazonaws.com", ".amazonaws.com.cn")
        )


class Explicit:
    """Credentials given as arguments, for obstore to call. Kept masked; not mixed with those of the environment."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options

    def __call__(self) -> Any:
        """Return the credentials as obstore reads them."""
        options = self._options
        return {
            "access_key_id": options.access_key_id,
            "secret_access_key": revealed(options.secret_access_key),
            "token": revealed(options.session_token),
            "expires_at": None,
        }


class Chained:
    """Credentials of boto3's chain, for obstore to call whenever the last ones near their end."""

    def __init__(self, chain: Any, found: Any) -> None:
        from obstore.auth.boto3 import Boto3CredentialProvider

        self._ask = Boto3CredentialProvider(chain, ttl=_LIFETIME)
        self._found = found

    def __call__(self) -> Any:
        """Return the credentials as obstore reads them, with their own end where that is sooner than ours."""
        given = self._ask()
        if ends := getattr(self._found, "_expiry_time", None):
            given["expires_at"] = min(given["expires_at"], ends.astimezone(UTC))
        return given


def revealed(secret: Masked | None) -> str | None:
    """Return a secret itself, None for none."""
    return None if secret is None else secret.reveal()


def uses_chain(options: StoreOptions) -> bool:
    """Say whether boto3 must be asked: not for explicit keys or keys in the environment, unless a profile is named."""
    if options.profile or os.environ.get("AWS_PROFILE"):
        return True
    in_environment = os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY")
    return options.access_key_id is None and not in_environment


def session(options: StoreOptions, kind: Any = None) -> Any:
    """Return a new boto3 session, or one of another class, that acts as the options say.

    Raises ``Invalid`` for a profile that nobody defined.
    """
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        made = (kind or boto3.Session)(
            profile_name=options.profile,
            region_name=options.region,
            aws_access_key_id=options.access_key_id,
            aws_secret_access_key=revealed(options.secret_access_key),
            aws_session_token=revealed(options.session_token),
        )
        # Shared, because reading the description of S3 anew takes longer than all else in making a client.
        made._session.register_component("data_loader", descriptions())  # noqa: SLF001 - boto3 has no public way
    except BotoCoreError as error:
        profile = options.profile or os.environ.get("AWS_PROFILE")
        raise Invalid(
            f"the AWS configuration cannot be used, profile={profile}, cause={error}",
            kind="no_such_profile",
            hint="see 'aws configure list-profiles'",
        ) from error
    return made


def _read_descriptions() -> Any:
    from botocore.loaders import create_loader

    return create_loader(os.environ.get("AWS_DATA_PATH"))


descriptions = PerProcess(_read_descriptions)


def place(options: StoreOptions, chain: Any = None) -> Place:
    """Return the endpoint, region and address style, from the AWS configuration where the options leave them open."""
    endpoint = options.endpoint or (_configured_endpoint(chain) if chain is not None else None)
    region = options.region or (chain.region_name if chain is not None else None) or DEFAULT_REGION
    found = Place(endpoint, region, path_style=bool(options.path_style))
    if options.path_style is None:
        # A name with dots fits no wildcard certificate, so virtual hosts fail for it.
        found = found._replace(path_style=found.custom or "." in options.location.bucket)
    return found


def certificates(options: StoreOptions) -> bytes | None:
    """Return the authorities to trust beside the known ones. Raises ``Invalid`` for a file that cannot be read."""
    try:
        return Path(options.ca_bundle).read_bytes() if options.ca_bundle else None
    except OSError as error:
        raise Invalid(f"the CA bundle cannot be read, ca_bundle={options.ca_bundle}", kind="bad_option") from error


def provider(options: StoreOptions, chain: Any) -> Callable[[], Any] | None:
    """Return what obstore calls for credentials, None where it reads the environment by itself.

    Raises ``Invalid`` where there are none: obstore would look for a cloud's own, and fail less clearly.
    """
    if options.access_key_id is not None:
        return Explicit(options)
    if chain is None:
        return None
    if os.environ.get("AWS_SKIP_SIGNATURE"):
        return None
    found = chain.get_credentials()
    if found is None:
        raise no_answer("no_credentials", Call("open", "", f"store={options.url}"), "the chain ended")
    return Chained(chain, found)


def _configured_endpoint(chain: Any) -> str | None:
    from botocore.configprovider import ConfiguredEndpointProvider

    core = chain._session  # noqa: SLF001 - boto3 has no public way to its configuration
    if core.get_config_variable("ignore_configured_endpoint_urls"):
        return None
    found = ConfiguredEndpointProvider(
        full_config=core.full_config, scoped_config=core.get_scoped_config(), client_name="s3"
    ).provide()
    return None if found is None else str(found)
