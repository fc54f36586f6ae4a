# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""What the settings of an S3 store come to, for a person who asks why it goes where it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gym_objstore.store import credentials
from gym_objstore.store.answers import Call
from gym_objstore.store.boto_client import translated
from gym_objstore.store.options import Setting

if TYPE_CHECKING:
    from gym_objstore.store.options import StoreOptions


def describe(options: StoreOptions) -> tuple[Setting, ...]:
    """Return the effective endpoint, region, address style and identity with their sources, without secrets.

    Reads the AWS configuration and may ask its credential sources, so it may take seconds.
    """
    given = {one.name: one for one in options.describe()}
    chain = credentials.session(options)
    found = credentials.place(options, chain)
    configured = f"profile {chain.profile_name}"
    access_key, method = _identity(options, chain)
    return (
        _effective(given["endpoint"], found.endpoint or "AWS", configured if found.endpoint else "default"),
        _effective(given["region"], found.region, configured if chain.region_name else "default"),
        _effective(given["path_style"], str(found.path_style), "derived from the endpoint and bucket"),
        Setting("identity", access_key, method),
    )


def _identity(options: StoreOptions, chain: Any) -> tuple[str, str]:
    """Return the access key in use and where it came from, asking whatever gives it."""
    if options.access_key_id is not None:
        return options.access_key_id, "argument"
    try:
        found = chain.get_credentials()
        return ("", "none") if found is None else (found.get_frozen_credentials().access_key, found.method)
    except Exception as error:
        if (meaning := translated(error, Call("open", "", f"store={options.url}"))) is None:
            raise
        raise meaning from error


def _effective(given: Setting, value: str, source: str) -> Setting:
    return given if given.value else Setting(given.name, value, source)
