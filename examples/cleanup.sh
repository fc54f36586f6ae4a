#!/bin/sh
# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0
#
# Cleans up after a month of runs: shows what the store holds and costs, and which runs there are; then reports what
# may go, or removes what was reported. It may run beside live writers, and repeating it finishes it.
#
#     export GYM_OBJSTORE_URL=s3://bucket/rl
#     sh examples/cleanup.sh look     # changes nothing; every object that may go is a line of gc-report.jsonl
#     sh examples/cleanup.sh apply    # removes what the report names and still may go
#
# EXPIRE_AFTER (30d) is how long ago a run was closed (`gym-objstore runs close RUN`), or if nobody closed it was written
# to for the last time, for all of it to go. REPORT (gc-report.jsonl) is the report. Further arguments are those of
# `gym-objstore gc`. Give both steps the list of every checkpoint that may still be restored: --checkpoint FILE, with a
# staging key or rollout id in each line.
set -eu

unset GYM_OBJSTORE_RUN_ID # all runs, not this shell's
step=${1:-look}
[ $# -eq 0 ] || shift
report=${REPORT:-gc-report.jsonl}

case "$step" in
look)
    gym-objstore du
    gym-objstore runs list --bytes
    gym-objstore gc --expire-after "${EXPIRE_AFTER:-30d}" --report "$report" "$@"
    ;;
apply)
    gym-objstore gc --apply "$report" "$@"
    gym-objstore du
    ;;
*)
    echo "usage: cleanup.sh [look|apply] [OPTION OF gc...]" >&2
    exit 2
    ;;
esac
