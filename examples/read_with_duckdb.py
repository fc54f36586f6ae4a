# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
"""SQL over the captured calls of a run: it is exported as one Parquet file, and DuckDB reads that.

Run: ``pip install 'gym-objstore[cli,parquet]' duckdb`` and
``python examples/read_with_duckdb.py --url s3://bucket/rl --run-id run-7 --to exported``

Prints calls, tokens and latencies of each model, what went wrong, the rollouts with most tokens, and how often each
tool was called. With ``--sql`` it answers that instead; the table is ``calls``, and ``DESCRIBE calls`` is a start.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import duckdb

QUESTIONS = {
    "models": """
        SELECT model, count(*) AS calls, sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out,
               round(quantile_cont(latency_total_ms, 0.5)) AS p50_ms,
               round(quantile_cont(latency_total_ms, 0.95)) AS p95_ms
        FROM calls GROUP BY model ORDER BY calls DESC, model""",
    "errors": """
        SELECT error_category, status_code, count(*) AS calls
        FROM calls WHERE error_category IS NOT NULL GROUP BY ALL ORDER BY calls DESC, error_category""",
    "longest rollouts": """
        SELECT rollout_id, count(*) AS calls, sum(tokens_total) AS tokens, bool_or(rollout_incomplete) AS incomplete
        FROM calls GROUP BY rollout_id ORDER BY tokens DESC NULLS LAST, rollout_id LIMIT 10""",
    "tools": """
        SELECT tool ->> 'name' AS tool, count(*) AS called
        FROM (SELECT unnest(from_json(tool_calls, '["JSON"]')) AS tool FROM calls)
        GROUP BY ALL ORDER BY called DESC, tool""",
}


def export(url: str | None, run_id: str | None, folder: Path) -> None:
    """Write the calls of a run into ``calls.parquet``, replacing an older one."""
    place = [*(["--url", url] if url else []), *(["--run-id", run_id] if run_id else [])]
    command = ["gym_objstore", "export", "--format", "parquet", "--to", str(folder), *place]
    code = subprocess.run([sys.executable, "-m", *command], check=False).returncode
    if code > 1:  # 1 is a finding: a damaged capture is a row, too, whose column unreadable is true
        raise SystemExit(code)


def main() -> None:
    """Export, ask and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="default: GYM_OBJSTORE_URL")
    parser.add_argument("--run-id", help="default: GYM_OBJSTORE_RUN_ID")
    parser.add_argument("--to", type=Path, default=Path("exported"), help="folder for the Parquet file")
    parser.add_argument("--sql", help="a question of your own")
    asked = parser.parse_args()
    export(asked.url, asked.run_id, asked.to)
    with duckdb.connect() as database:
        database.from_parquet(str(asked.to / "calls.parquet")).create_view("calls")
        for title, question in ({"answer": asked.sql} if asked.sql else QUESTIONS).items():
            print(title, database.sql(question), sep="\n")


if __name__ == "__main__":
    main()
