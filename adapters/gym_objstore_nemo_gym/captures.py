# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Puts the bucket in place of Gym's capture directory: the one file that changes something in Gym.

What is captured, its records, the attachment and its gaps stay Gym's. In a model server the bucket takes the
captures; in a rollout collector it is cleared before dispatch and read for each record. Nothing is changed unless
everything can be.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gym_objstore.attachment import FIELD, PENDING, gap
from gym_objstore.capture_store import DRAIN_SECONDS
from gym_objstore.errors import Invalid, Unusable
from gym_objstore.redaction import redaction
from gym_objstore.settings import Settings
from gym_objstore_nemo_gym.capture_calls import BucketCaptures, CaptureCalls
from gym_objstore_nemo_gym.shim import collector, model_server

if TYPE_CHECKING:
    from types import ModuleType

REDACT_VARIABLE = "GYM_OBJSTORE_REDACT"

SEAMS = (
    "ModelCallCaptureConfig",
    "_CaptureMiddleware",
    "_store_for_rollout",
    "clear_model_call_captures_for_rollouts",
    "make_capture_store",
    "merge_model_call_capture_into_record",
    "model_call_capture_dirs_from_config",
)
"""What is replaced in the module of Gym's model server, and where the collector imported it by name."""

_ROLLOUT_ID = "maybe_rollout_id_from_run_body"

_log = logging.getLogger("gym_objstore")
_changing = threading.Lock()


class _Active(NamedTuple):
    """What is in place: for which settings, and of each replaced name Gym's value and ours."""

    settings: Settings
    redact: tuple[str, ...]
    theirs: dict[str, Any]
    ours: dict[str, Any]


_active: _Active | None = None


def activate(
    url: str | None = None, run_id: str | None = None, *, redact: str | Sequence[str] | None = None, **options: Any
) -> None:
    """Have Gym capture into the bucket in this process, and its collector read from there.

    Without arguments the environment says where: ``GYM_OBJSTORE_URL``, ``GYM_OBJSTORE_RUN_ID`` and, for the names of
    redaction rules between commas, ``GYM_OBJSTORE_REDACT``. Servers that were built before keep what they have.
    Gym's ``observability_enabled: false`` still turns captures off, and it takes no ``model_call_capture_dir``.

    Repeating: changes nothing with the same settings. Raises: ``Invalid`` for other settings, or for bad ones;
    ``Unusable`` where this nemo-gym lacks what must be replaced, and then nothing is.
    """
    global _active  # noqa: PLW0603 - Gym's modules are the process's too
    settings, rules = Settings.of(url, run_id, **options), _rules(redact)
    with _changing:
        if _active is None:
            _active = _put_in_place(settings, rules, BucketCaptures(url, run_id, redact=_redaction(rules), **options))
        elif (_active.settings, _active.redact) != (settings, rules):
            there = f"url={_active.settings.store.url}, run_id={_active.settings.run_id}"
            raise Invalid(
                f"this process captures into another run or with other options already, {there}",
                kind="active_elsewhere",
                hint="give every component of a process the same url, run_id, redact and options",
            )


def deactivate() -> None:
    """Give Gym back what ``activate`` replaced; servers that were built meanwhile keep the bucket. Repeatable."""
    global _active  # noqa: PLW0603 - as above
    with _changing:
        if _active is not None:
            _replace(_active.ours, _active.theirs)
            _active = None


class Capturing:
    """A component that Gym builds from YAML, and whose kwarg ``captures: true`` calls ``activate``.

    The other arguments are the component's; ``redact`` beside them is ``activate``'s.
    """

    def __init__(
        self,
        url: str | None = None,
        run_id: str | None = None,
        *,
        captures: bool = False,
        redact: str | Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(url, run_id, **options)  # type: ignore[call-arg] # of the component behind this one
        if not isinstance(captures, bool):
            hint = "write it without quotes; that of a variable is ${oc.decode:${oc.env:NAME}}"
            raise Invalid(f"captures must be true or false, value={captures!r:.80}", kind="bad_option", hint=hint)
        if captures:
            activate(url, run_id, redact=redact, **options)
        elif redact is not None:
            raise Invalid("redact is about captures, which are off here", kind="bad_option", hint="set captures: true")


def _rules(redact: str | Sequence[str] | None) -> tuple[str, ...]:
    if redact is None:
        redact = [name.strip() for name in os.environ.get(REDACT_VARIABLE, "").split(",") if name.strip()]
    return (redact,) if isinstance(redact, str) else tuple(redact)


def _redaction(rules: tuple[str, ...]) -> Any:
    return redaction(*rules) if rules else None


def _put_in_place(settings: Settings, rules: tuple[str, ...], store: BucketCaptures) -> _Active:
    module = model_server()
    missing = [name for name in (*SEAMS, _ROLLOUT_ID) if not hasattr(module, name)]
    if missing:
        names = ", ".join(f"{module.__name__}.{name}" for name in missing)
        raise Unusable(f"this nemo-gym lacks what captures into a bucket need, names={names}", kind="no_seam")
    theirs = {name: getattr(module, name) for name in SEAMS}
    ours = _replacements(module, theirs, store)
    # Asking for the connection opens the store, without I/O: one that cannot be opened must not fail model calls.
    _log.info("captures go into the bucket, url=%s, run_id=%s", store.connection.store.url, settings.run_id)
    _replace(theirs, ours)
    return _Active(settings, rules, theirs, ours)


def _replace(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for module in (model_server(), collector()):
        for name, value in found.items():
            if getattr(module, name, None) is value:
                setattr(module, name, wanted[name])


def _replacements(module: ModuleType, theirs: dict[str, Any], store: BucketCaptures) -> dict[str, Any]:
    switch, rollout_id_of = _Switch(store), getattr(module, _ROLLOUT_ID)
    config = _without_directory(theirs["ModelCallCaptureConfig"])
    return {
        "ModelCallCaptureConfig": config,
        "_CaptureMiddleware": type("CaptureMiddleware", (CaptureCalls,), {"gyms": theirs["_CaptureMiddleware"]}),
        "_store_for_rollout": lambda _rollout_id, _directories: store,
        "clear_model_call_captures_for_rollouts": _clearing(store, rollout_id_of),
        "make_capture_store": switch.store,
        "merge_model_call_capture_into_record": _merging(
            store, rollout_id_of, theirs["merge_model_call_capture_into_record"]
        ),
        "model_call_capture_dirs_from_config": lambda found: switch.places(config.model_validate(found)),
    }


def _without_directory(theirs: Any) -> Any:
    """Return Gym's settings of captures, on unless said otherwise, and with no directory asked for."""
    from pydantic import model_validator

    class ModelCallCaptureConfig(theirs):  # type: ignore[misc]
        observability_enabled: bool = True

        @model_validator(mode="after")
        def validate_capture_dir(self) -> Any:
            return self

    try:
        ModelCallCaptureConfig.model_validate({"observability_enabled": True})
    except ValueError as error:
        message = f"this nemo-gym lacks what captures into a bucket need, names={theirs.__name__}.validate_capture_dir"
        raise Unusable(message, kind="no_seam") from error
    return ModelCallCaptureConfig


class _Switch:
    """Gym's two questions to its settings: where a server captures to, and where a collector reads."""

    def __init__(self, store: BucketCaptures) -> None:
        self._store, self._said = store, set[str]()

    def store(self, config: Any) -> BucketCaptures | None:
        """Return the store for a server, or None if captures are off."""
        return self._store if self._on(config) else None

    def places(self, config: Any) -> list[str]:
        """Return one place for a collector to pass on, or none if captures are off."""
        return [self._store.settings.store.url] if self._on(config) else []

    def _on(self, config: Any) -> bool:
        # A server's settings may have been read before a component of the same server put us in place.
        if "observability_enabled" in config.model_fields_set and not config.observability_enabled:
            self._say("observability_enabled is false, so nothing is captured, url=%s, run_id=%s")
            return False
        if config.model_call_capture_dir is not None:
            self._say("captures go into the bucket, and model_call_capture_dir is not used, url=%s, run_id=%s")
        return True

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            _log.warning(text, self._store.settings.store.url, self._store.settings.run_id)


def _clearing(store: BucketCaptures, rollout_id_of: Callable[[Any], str | None]) -> Callable[..., None]:
    def clear(records: Sequence[Any], directories: Sequence[Any]) -> None:
        rollouts = dict.fromkeys(one for record in records if (one := rollout_id_of(record)))
        if directories and rollouts:
            store.clear(rollouts)

    return clear


def _merging(
    store: BucketCaptures, rollout_id_of: Callable[[Any], str | None], theirs: Callable[..., Any]
) -> Callable[..., Any]:
    def merge(record: dict[str, Any], directories: Sequence[Any], *, include_payloads: bool = False) -> Any:
        rollout_id = rollout_id_of(record) if directories else None
        landed = rollout_id is None or store.connection.writer.wait(rollout_id, DRAIN_SECONDS)
        merged = theirs(record, directories, include_payloads=include_payloads)
        if not landed:
            record[FIELD].setdefault("gaps", []).append(gap(PENDING))
        return merged

    return merge
