# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Whether an identity may do its job here: exactly the operations it needs, tried with objects that harm nothing.

Owns: what each identity needs, as ``terraform/policies`` allows it, and trying that. Reading and removing are tried
on objects that do not exist. Writing leaves one small object for each kind in the ``!probe`` run, which is no run;
whoever may remove them does. Probes of the store itself are in ``diagnosis``.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from gym_objstore.diagnosis import Probe, administration, failed, server_clock
from gym_objstore.errors import Denied, NotFound, ObjstoreError
from gym_objstore.flow import Delete, Get, Head, Put, Scan, arun, perform_async
from gym_objstore.keys import FAMILIES, RUN_FOLDER, writer_key
from gym_objstore.objects import announcement, read_object
from gym_objstore.run_keys import PROBES, probe_key
from gym_objstore.runs import describe_run
from gym_objstore.spill import Spill
from gym_objstore.store import joined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gym_objstore.store import Store
    from gym_objstore.store.options import StoreOptions


class Job(NamedTuple):
    """What an identity does: the families it lists and reads, and by family the kinds it writes and removes."""

    reads: tuple[str, ...]
    writes: Mapping[str, tuple[str, ...]] = {}
    removes: Mapping[str, tuple[str, ...]] = {}
    spills: bool = False


JOBS: Mapping[str, Job] = {
    "model-server": Job(
        reads=("captures", "tokens", "ledger"),
        writes={
            "captures": (RUN_FOLDER, "records", "markers"),
            "tokens": (RUN_FOLDER, "intents", "entries", "markers", "refusals"),
            "ledger": (RUN_FOLDER, "rows", "failures"),
        },
        removes={"ledger": ("rows", "failures")},
        spills=True,
    ),
    "inference-worker": Job(reads=("staged",), writes={"staged": (RUN_FOLDER, "rows")}),
    "trainer": Job(
        reads=FAMILIES,
        writes={
            "tokens": ("fences", "packs"),
            "ledger": ("fences",),
            "manifests": (RUN_FOLDER, "receipts", "consumed", "fences"),
        },
        removes={
            "captures": ("records", "markers"),
            "tokens": ("intents", "entries", "markers", "refusals", "packs", "fences"),
            "ledger": ("rows", "failures", "fences"),
            "manifests": (RUN_FOLDER, "receipts", "consumed", "fences"),
        },
    ),
    "sweeper": Job(
        reads=FAMILIES,
        removes={
            "tokens": ("intents", "entries", "markers", "refusals", "packs"),
            "staged": ("rows",),
            "ledger": ("rows", "failures"),
            "manifests": ("receipts", "consumed"),
        },
    ),
    "viewer": Job(reads=FAMILIES),
}
"""The identities by the names that ``terraform/policies`` gives them."""

_BODY = b"written by gym-objstore doctor"


class Preflight(NamedTuple):
    """What is to be tried: as whom, where, for which run (None for any), and where writes would be spilled."""

    identity: str
    options: StoreOptions
    run_id: str | None
    spill_dir: str

    @property
    def job(self) -> Job:
        """What the identity does."""
        return JOBS[self.identity]


async def fly(plan: Preflight, store: Store) -> AsyncIterator[Probe]:
    """Yield the checks one by one. A store that cannot be reached, or does not know us, is asked nothing more."""
    async for probe in _checks(plan, store):
        refused = probe.kind == "access_denied"
        hint = f"allow it, as terraform/policies/{plan.identity}.json.tftpl does" if refused else probe.hint
        yield probe._replace(hint=hint)


async def _checks(plan: Preflight, store: Store) -> AsyncIterator[Probe]:
    reached = await _reach(plan.job, store)
    yield reached
    if reached.verdict != "failed":
        for family in plan.job.reads:
            yield await _lists(family, store)
            yield await _reads(family, store)
        for family, kinds in plan.job.writes.items():
            yield await _writes(family, kinds, store, left=not set(kinds) <= set(plan.job.removes.get(family, ())))
        for family, kinds in plan.job.removes.items():
            keys = tuple(probe_key(family, kind) for kind in kinds)
            yield await _tried(f"remove {family}/", store, Delete(keys))
        if plan.run_id is not None:
            async for probe in _run(plan.run_id, plan.job, store):
                yield probe
    if plan.options.location.scheme == "s3":
        yield await asyncio.to_thread(server_clock, plan.options)
        if reached.verdict != "failed":
            for probe in await asyncio.to_thread(administration, plan.options):
                yield probe
    if plan.job.spills:
        yield await asyncio.to_thread(_spill, plan.spill_dir, store.url)


async def _reach(job: Job, store: Store) -> Probe:
    try:
        await perform_async(Scan(f"{job.reads[0]}/{PROBES}/doctor/"), store)
    except ObjstoreError as error:
        # Being refused one listing is an answer, and other operations may be allowed.
        if not isinstance(error, Denied) or error.kind != "access_denied":
            return failed("reach", error)
    return Probe("reach", "ok", f"store={store.url}")


async def _lists(family: str, store: Store) -> Probe:
    return await _tried(f"list {family}/", store, Scan(f"{family}/{PROBES}/doctor/"))


async def _reads(family: str, store: Store) -> Probe:
    key = probe_key(family, "absent")
    try:
        await perform_async(Get(key), store)
    except NotFound:
        return await _tried(f"read {family}/", store, Head(key))
    except ObjstoreError as error:
        return failed(f"read {family}/", error)
    return Probe(f"read {family}/", "failed", f"an object that nobody wrote was found, key={key}", kind="found")


async def _writes(family: str, kinds: tuple[str, ...], store: Store, *, left: bool) -> Probe:
    name = f"write {family}/"
    for kind in kinds:
        tried = await _tried(name, store, Put(probe_key(family, kind), _BODY))
        if tried.verdict == "failed":
            return tried._replace(detail=f"{tried.detail}, kind={kind}")
    detail = f"kinds={','.join(kinds)}"
    return Probe(name, "ok", f"{detail}, left below {family}/{PROBES}/" if left else detail)


async def _tried(name: str, store: Store, operation: Scan | Head | Put | Delete) -> Probe:
    try:
        await perform_async(operation, store)
    except ObjstoreError as error:
        return failed(name, error)
    return Probe(name, "ok")


async def _run(run_id: str, job: Job, store: Store) -> AsyncIterator[Probe]:
    """Yield what is to be known of a run before anything is done in it."""
    written = []
    for family in job.reads:
        try:
            body = await perform_async(Get(writer_key(family, run_id)), store)
            if read_object(body) != read_object(joined(announcement(family, run_id).body)):
                yield Probe(f"run {family}/", "failed", *_OTHER_RUN, kind="foreign_object")
            written.append(family)
        except NotFound:
            continue
        except ObjstoreError as error:
            yield failed(f"run {family}/", error)
    yield _who_wrote(run_id, written, job)
    if "manifests" in job.reads:
        yield await _described(run_id, job, store)


_OTHER_RUN = (
    "the run's writer marker is not what this version writes: the run has another layout",
    "use the version that wrote the run, or another run id",
)


def _who_wrote(run_id: str, written: list[str], job: Job) -> Probe:
    if written:
        return Probe("run", "ok", f"run_id={run_id}, written={','.join(written)}")
    detail = f"nobody wrote to this run here yet, run_id={run_id}"
    if job.writes:
        return Probe("run", "ok", detail, kind="no_writer")
    return Probe("run", "warning", detail, "check that writer and reader use the same url and run id", "no_writer")


async def _described(run_id: str, job: Job, store: Store) -> Probe:
    try:
        found = await arun(describe_run(run_id), store)
    except ObjstoreError as error:
        return failed("descriptor", error)
    if found.conflict:
        detail = f"the run id was used with different settings, run_id={run_id}, descriptors={len(found.descriptors)}"
        return Probe("descriptor", "failed", detail, "use another run id", "run_settings")
    if found.closed is not None and job.writes:
        return Probe("descriptor", "failed", f"the run is closed, run_id={run_id}", "use another run id", "run_closed")
    return Probe("descriptor", "ok", f"descriptors={len(found.descriptors)}")


def _spill(directory: str, url: str) -> Probe:
    """Say whether this machine's folder takes what the store may not, and whether something waits there."""
    spill = Spill(directory, url)
    try:
        spill.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=spill.folder) as file:
            file.write(_BODY)
        waiting = len(spill)
    except OSError as error:
        detail = f"the spill folder cannot be written, folder={spill.folder}, cause={error}"
        return Probe(
            "spill", "failed", detail, "set GYM_OBJSTORE_SPILL_DIR to a folder that survives restarts", "spill"
        )
    if waiting:
        detail = f"writes wait for the store, folder={spill.folder}, waiting={waiting}"
        return Probe("spill", "warning", detail, "store them: gym-objstore spill --replay", "spill_waiting")
    return Probe("spill", "ok", f"folder={spill.folder}, waiting=0")
