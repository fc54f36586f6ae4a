# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""One look through what is kept: what a refusal holds up, what silence ends."""

from __future__ import annotations

from pathlib import Path

from gym_objstore.errors import Denied, Invalid, Unavailable
from gym_objstore.flow import Put
from gym_objstore.replaying import replay_each, waiting_in
from gym_objstore.spill import Spill, Spilled


def kept(*keys):
    return [Spilled(Path(key), Put(key, b"{}"), 0.0) for key in keys]


async def replayed(keys, answers):
    """Replay keys, of which some are answered with an error; return those that were tried, and the error raised."""
    tried = []

    async def replay(one):
        tried.append(one.put.key)
        if one.put.key in answers:
            raise answers[one.put.key]

    try:
        await replay_each(kept(*keys), replay)
    except (Denied, Invalid, Unavailable) as error:
        return tried, error
    return tried, None


async def test_a_denied_write_holds_up_only_its_own_family_and_run():
    denied = Denied("no")
    keys = ["captures/a/1", "captures/a/2", "captures/b/3", "tokens/a/4"]
    tried = ["captures/a/1", "captures/b/3", "tokens/a/4"]
    assert await replayed(keys, {"captures/a/1": denied}) == (tried, denied)


async def test_a_write_that_can_never_be_stored_holds_up_no_other():
    invalid = Invalid("too large")
    keys = ["captures/a/1", "captures/a/2"]
    assert await replayed(keys, {"captures/a/1": invalid}) == (keys, invalid)


async def test_silence_ends_the_look_at_once():
    down = Unavailable("down")
    assert await replayed(["captures/a/1", "tokens/a/2"], {"captures/a/1": down}) == (["captures/a/1"], down)


def test_a_folder_that_cannot_be_read_keeps_nothing_and_is_reported(monkeypatch, caplog, tmp_path):
    def refused(self):
        raise PermissionError("not yours")

    monkeypatch.setattr(Spill, "_files", refused)
    assert waiting_in(Spill(tmp_path, "memory://")) == 0
    assert "kept writes cannot be replayed yet" in caplog.text
    assert "not yours" in caplog.text
