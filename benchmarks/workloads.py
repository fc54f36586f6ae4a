# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""Every workload and the target it is judged by."""

from __future__ import annotations

from benchmarks.harness import Workload
from benchmarks.million import million_rows
from benchmarks.proxy import proxy_rows
from benchmarks.puts import cpu_rows, put_rows, stall_rows
from benchmarks.reads import freeze_rows, resolve_rows
from benchmarks.removal import retire_rows
from benchmarks.staging import stage_rows, trainer_rows
from benchmarks.starts import start_rows

WORKLOADS = (
    Workload(
        "put",
        "at least 0.85 of raw PUT throughput at 30 ms and up to 64 callers, 0.70 elsewhere, p99 at most 1.25 of raw; "
        "ahead of the boto3, aioboto3 and s3fs loops; 15 times Gym's file store on a mounted bucket",
        put_rows,
    ),
    Workload("cpu", "at most 1.0 ms CPU of ours per entry of 8k tokens at 0 ms, codec included", cpu_rows),
    Workload("loop", "no single stall over 5 ms while 256 puts of 32k tokens are under way", stall_rows),
    Workload(
        "resolve",
        "fresh process: 2 round trips at any length; same process: 1; 1,000 calls take at most 1.5 of 10 at 30 ms",
        resolve_rows,
    ),
    Workload(
        "freeze",
        "at most 1.2 of a bare LIST with concurrent GETs; a published snapshot 5 times faster at 1,000 entries",
        freeze_rows,
    ),
    Workload("stage", "at least 0.85 of raw PUT from 1 to 64 threads, with and without attachments", stage_rows),
    Workload(
        "trainer",
        "at least 0.8 of raw GET throughput, verification included; a second epoch from a cache without requests",
        trainer_rows,
    ),
    Workload("retire", "1 PUT and 1 LIST for each rollout, deletes by the thousand, 3 round trips deep", retire_rows),
    Workload("million", "sweep and du over 1,000,000 objects in constant memory under 200 MB", million_rows),
    Workload(
        "proxy", "64 concurrent streams: under 5 % added to the time of the first event and to the whole", proxy_rows
    ),
    Workload("start", "import under 150 ms, command line under 400 ms", start_rows),
)
