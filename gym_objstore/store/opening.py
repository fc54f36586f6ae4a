# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""From a url to a store: which backend serves it, and what is put around that backend.

Opening does no I/O and imports no client; both happen at the first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gym_objstore.errors import Invalid
from gym_objstore.store.location import CLOUDS
from gym_objstore.store.memory import MemoryStore
from gym_objstore.store.options import StoreOptions

if TYPE_CHECKING:
    from gym_objstore.store import Store
    from gym_objstore.store.paired import PairedStore

_SERVED = {"obstore": CLOUDS, "boto": ("s3",)}
_LOCAL = ("file", "memory")


def open_store(url: str | StoreOptions | None = None, **options: object) -> Store:
    """Return the store that a url and options, or the environment, name.

    ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix``, ``file:///folder``,
    ``memory://name``, or any url of fsspec. ``StoreOptions`` says what the options are. Raises ``Invalid``
    for what cannot be read; whether the place exists and lets us in is found at the first use.
    """
    if isinstance(url, StoreOptions) and options:
        raise Invalid("options are given twice", kind="bad_option", hint="put them all into StoreOptions.of")
    found = url if isinstance(url, StoreOptions) else StoreOptions.of(url, **options)
    scheme = found.location.scheme
    backend = _backend(scheme, found)
    if scheme == "memory":
        return MemoryStore.named(found.url.removeprefix("memory://"))
    if scheme == "file":
        from gym_objstore.store.file_store import FileStore

        return FileStore(found)
    from gym_objstore.store.boto_client import retry_after
    from gym_objstore.store.retrying import RetryingStore

    return RetryingStore(_made(backend, found), seconds=found.retry_seconds, limit=found.concurrency, asked=retry_after)


def _backend(scheme: str, options: StoreOptions) -> str:
    """Return the name of the backend, after making sure that it serves the scheme."""
    if options.backend == "auto":
        return _chosen(scheme)
    if scheme in _LOCAL or scheme not in _SERVED.get(options.backend, (scheme,)):
        raise Invalid(
            f"the backend does not serve such urls, backend={options.backend}, url={options.url}",
            kind="bad_option",
            hint="leave out backend= to have one chosen",
        )
    return options.backend


def _chosen(scheme: str) -> str:
    if scheme not in CLOUDS:
        return "fsspec"
    from gym_objstore.store.obstore_store import forked_after_use

    return "boto" if scheme == "s3" and forked_after_use() else "obstore"


def _made(backend: str, options: StoreOptions) -> PairedStore:
    if backend == "obstore":
        from gym_objstore.store.obstore_store import ObstoreStore

        return ObstoreStore(options)
    if backend == "boto":
        from gym_objstore.store.boto_store import BotoStore

        return BotoStore(options)
    from gym_objstore.store.fsspec_store import FsspecStore

    return FsspecStore(options)
