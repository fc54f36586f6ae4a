# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""A mixed load for minutes: whole rollouts from admission to retirement, each checked before it goes.

Run: ``python -m benchmarks.soak --minutes 10 [--url s3://bucket/prefix]``. Without a url, SeaweedFS and the MinIO
gateway are started on this machine, one after the other; with one, credentials come from the environment. Every
rollout writes token entries, captures, staged rows and ledger rows, is frozen, re-read by ``check``, published, read
by a trainer and retired in every family; a sweep runs beside it all. One call in fifty is lost on purpose, and must
show. Prints JSON, and a Markdown table. Ends with 1 if there was any violation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_objstore import CaptureLedger, CaptureStore, StagingSink, TokenSink, TokenSource, TrainerClient, tokens
from gym_objstore.checking import check_rollout
from gym_objstore.keys import rollout_prefix
from gym_objstore.receipts import build_receipt
from gym_objstore.receipts_reading import Trainable
from gym_objstore.records import ParentResolutionStatus, TokenEntry
from gym_objstore.stamps import stamp_continuation, stamp_lineage
from gym_objstore.sweeping import find_orphans, remove_orphans
from gym_objstore.testing import servers
from gym_objstore.testing.staged_rollouts import ledger_row, staged_call
from gym_objstore.wire_ledger import CaptureLedgerCommit

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = "soak"
CALLS = 6
TOKENS = 2_000
LOST = 50
SWEEP_SECONDS, GRACE_SECONDS = 20.0, 60.0
WINDOWS = 10


def call_entry(rollout: str, call: str, number: int) -> TokenEntry:
    """Return the entry of one call, a root; no two are alike."""
    generated = TOKENS // 8
    entry = TokenEntry(
        rollout_id=rollout,
        model_call_id=call,
        prompt_token_ids=[number % 150_000, *range(TOKENS - generated - 1)],
        generation_token_ids=list(range(generated)),
        generation_log_probs=[-0.5] * generated,
        output_items=[{"type": "message", "role": "assistant", "content": f"{call} of {rollout}"}],
        token_item_index=0,
    )
    stamp_continuation(entry, [{"role": "user", "content": call}])
    return stamp_lineage(entry, None, parent_resolution=ParentResolutionStatus.ROOT)


@dataclass
class Soak:
    """One soak of one server: what was done, what was found wrong, and how fast and how large it was meanwhile."""

    place: dict[str, Any]
    seconds: float
    concurrency: int
    done: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    samples: list[tuple[float, int, float]] = field(default_factory=list)

    async def run(self) -> dict[str, Any]:
        """Play rollouts until the time is over, and return the figures."""
        self.sink, self.source = TokenSink(**self.place), TokenSource(**self.place)
        self.ledger, self.stager = CaptureLedger(**self.place), StagingSink(**self.place)
        self.trainer, self.captures = TrainerClient(**self.place), CaptureStore(**self.place)
        self.begun = time.monotonic()
        numbers = iter(range(sys.maxsize))
        players = [self._play(numbers) for _ in range(self.concurrency)]
        await asyncio.gather(self._sample(), self._sweep(), *players)
        await self._check_rest()
        for one in (self.sink, self.source, self.ledger, self.stager, self.trainer, self.captures):
            await one.close()
        return self._figures()

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() - self.begun > self.seconds

    async def _play(self, numbers: Iterator[int]) -> None:
        while not self.over:
            number = next(numbers)
            try:
                await self._rollout(f"task-{number}_g0", number)
            except Exception as error:  # noqa: BLE001 - whatever it is, the soak goes on and tells
                self.violations.append(f"rollout {number}: {type(error).__name__}: {error}")
            self.done["rollouts"] += 1

    async def _rollout(self, rollout: str, number: int) -> None:
        chain: list[Any] = []
        lost = set()
        for turn in range(CALLS):
            call = f"call-{turn}"
            await self.sink.begin_call(rollout, call)
            if (number * CALLS + turn) % LOST == 0:
                lost.add(call)
                continue
            await self.sink.put(call_entry(rollout, call, number))
            record = await asyncio.to_thread(self._stage, rollout, call, chain)
            await self.ledger.record(record)
            exchange = {"model_call_id": call, "completed_at": time.time(), "request": {"turn": turn}, "response": {}}
            await self.captures.record_async(rollout, exchange)
            self.done["calls"] += 1
        await self._consume(rollout, lost)

    def _stage(self, rollout: str, call: str, chain: list[Any]) -> CaptureLedgerCommit:
        row = staged_call(call, after=chain, prompt=range(100), generated=range(100, 150), rollout_id=rollout)
        result = self.stager.stage(row)
        if result.staging_key is None:
            raise RuntimeError(result.error)
        chain.append(row)
        record = ledger_row(row, staging_key=result.staging_key, admitted_at=time.time())
        return CaptureLedgerCommit(
            rollout_id=rollout,
            record=record,
            staging_chain=(result.staging_key,),
            request_items=(),
            response_items=(),
        )

    async def _consume(self, rollout: str, lost: set[str]) -> None:
        """Check a rollout against what was acknowledged, train it, and retire it everywhere."""
        wanted = {f"call-{turn}" for turn in range(CALLS)} - lost
        connection = self.source.connection
        report = await connection.play(check_rollout(rollout, rollout_prefix(tokens.FAMILY, RUN, rollout)))
        self._require(all(one.severity != "error" for one in report.findings), rollout, report.findings)
        snapshot = await self.source.freeze(rollout)
        self._require({one.model_call_id for one in snapshot.entries} == wanted, rollout, "entries are missing")
        dangling = {one.model_call_id for one in snapshot.problems if one.kind == "dangling_intent"}
        self._require(dangling == lost, rollout, f"lost={lost}, shown={dangling}")
        receipt = build_receipt(await self.ledger.manifest(rollout), 1.0)
        await self.trainer.publish(receipt)
        (row,) = await self.trainer.read([rollout])
        self._require(isinstance(row, Trainable), rollout, row)
        found = await self.captures.read_async(rollout)
        self._require({one["model_call_id"] for one in found} == wanted, rollout, "captures are missing")
        dropped = await self.source.drop(rollout, snapshot_id=snapshot.snapshot_id, version=snapshot.version)
        self._require(dropped, rollout, "the drop was refused")
        await self.trainer.mark_consumed([rollout], "step-1")
        await self.ledger.retire([rollout])
        await self.captures.clear_async([rollout])

    def _require(self, holds: bool, rollout: str, said: object) -> None:  # noqa: FBT001 - reads as an assertion
        if not holds:
            self.violations.append(f"{rollout}: {said}")

    async def _sample(self) -> None:
        while not self.over:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])  # noqa: ASYNC240 - no disk
            megabytes = pages * resource.getpagesize() / 2**20
            self.samples.append((time.monotonic() - self.begun, self.done["calls"], megabytes))
            await asyncio.sleep(1.0)

    async def _sweep(self) -> None:
        """Sweep beside the live writers, which takes the staged rows of what was retired long enough ago."""
        while not self.over:
            await asyncio.sleep(min(SWEEP_SECONDS, self.seconds / 3))
            await self.trainer.retire_consumed(["step-1"])
            play = self.source.connection.play
            found = await play(find_orphans(RUN, now=time.time(), grace=GRACE_SECONDS))
            self.done["swept"] += len(await play(remove_orphans(found)))

    async def _check_rest(self) -> None:
        """Make sure that nothing is left in the spill, and nothing live in the run."""
        self._require(len(self.sink.connection.spill) == 0, "spill", "writes are left on disk")
        await self.trainer.retire_consumed(["step-1"])
        live = await self.trainer.finished()
        self._require(not live, "run", f"rollouts are left, count={len(live)}")

    def _figures(self) -> dict[str, Any]:
        """Return the rates of equal parts of the time, and the memory at their ends."""
        size = max(len(self.samples) // WINDOWS, 1)
        marks = self.samples[::size]
        rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(marks)]
        third = max(len(rates) // 3, 1)
        return {
            "seconds": round(self.samples[-1][0], 1),
            **self.done,
            "calls_per_second": round(self.samples[-1][1] / self.samples[-1][0], 1),
            "rate_last_third_over_first": round(sum(rates[-third:]) / sum(rates[:third]), 2),
            "rates": [round(rate, 1) for rate in rates],
            "rss_mb": [round(mark[2], 1) for mark in marks],
            "rss_growth_mb": round(marks[-1][2] - marks[min(2, len(marks) - 1)][2], 1),
            "violations": len(self.violations),
            "examples": self.violations[:5],
        }


def soak(name: str, place: dict[str, Any], minutes: float, concurrency: int) -> dict[str, Any]:
    """Soak one place with a spill folder of its own."""
    with tempfile.TemporaryDirectory() as spill:
        settings = {**place, "run_id": RUN, "spill_dir": spill}
        return {"server": name, **asyncio.run(Soak(settings, 60 * minutes, concurrency).run())}


def table(found: list[dict[str, Any]]) -> str:
    """Return the figures as a Markdown table."""
    names = ("server", "seconds", "rollouts", "calls", "calls_per_second", "rate_last_third_over_first")
    columns = (*names, "rss_growth_mb", "swept", "violations")
    lines = [columns, ["---"] * len(columns), *([str(one.get(name, 0)) for name in columns] for one in found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    """Soak every place and print what was found; 1 if there was any violation."""
    parser = argparse.ArgumentParser(description="mixed load, minutes long, with every promise checked")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--concurrency", type=int, default=16, help="rollouts at a time")
    parser.add_argument("--url", help="a bucket of your own; without it, servers are started here")
    asked = parser.parse_args()
    found = []
    if asked.url:
        found.append(soak(asked.url, {"url": asked.url}, asked.minutes, asked.concurrency))
    for start in () if asked.url else (servers.seaweedfs, servers.minio_gateway):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            server = stack.enter_context(start(folder))
            place = {"url": f"s3://{servers.make_bucket(server, 'soak')}", **server.settings()}
            found.append(soak(server.kind, place, asked.minutes, asked.concurrency))
    print(json.dumps(found, indent=1))
    print(table(found))
    return int(any(one["violations"] for one in found))


if __name__ == "__main__":
    sys.exit(main())
