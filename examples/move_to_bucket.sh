#!/bin/sh
# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
#
# Moves a run from Gym's files on a shared disk into a bucket, proves it, and copies it on to another bucket.
#
#     export GYM_OBJSTORE_URL=s3://bucket/rl GYM_OBJSTORE_RUN_ID=run-7
#     sh examples/move_to_bucket.sh results/model-calls                         # import, check, export back, compare
#     sh examples/move_to_bucket.sh results/model-calls s3://archive/rl         # and copy the run there
#
# Every step verifies what it wrote, and repeating the whole finishes what was interrupted. The files are left alone.
# It stops at a capture file that is not given back byte for byte: one whose last line was never finished.
# BACK (exported-files) is the folder of the files that are written back. See docs/gym-files.md for what has no
# counterpart on the other side.
set -eu

[ $# -ge 1 ] || { echo "usage: move_to_bucket.sh FOLDER [URL]" >&2; exit 2; }
files=$1
back=${BACK:-exported-files}

gym-objstore import "$files" --dry-run
gym-objstore import "$files"
gym-objstore check
gym-objstore export --to "$back"

for capture in "$files"/*.capture.jsonl; do
    [ -e "$capture" ] || continue
    cmp "$capture" "$back/${capture##*/}"
    echo "${capture##*/} is back, byte for byte"
done

[ $# -lt 2 ] || gym-objstore cp "$GYM_OBJSTORE_RUN_ID" --to "$2"
