#!/usr/bin/env bash
# Checks Plimsoll on an NVIDIA card in at most ten minutes, and measures what the project wants to know of it. Compiles nothing.
#
#   bench/gpu/pack.sh FOLDER         elsewhere: builds what it runs into FOLDER (below 64 MiB), with a copy of itself
#   FOLDER/check.sh OUT [SECONDS]    on the machine with the card: results in OUT, in check.json all of them
#   bench/gpu/adopt.py OUT           back in the project: the measured numbers become data of it
#
# Parts run in an order in which a cut leaves the important ones. A part that cannot run here is skipped, with the reason. The libraries are
# those that the program finds. With PLIMSOLL_CHECK_MOCK they are mocks, which PLIMSOLL_CUDA_LIBS and PLIMSOLL_NVML name: then only what a mock
# can say is asked.
# Exit status: 0 when no part has failed.
set -u
[ $# -ge 1 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd) || exit 2
budget=${2:-590}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
python=$(command -v python3 || true)
parts=()
failed=0
# A ledger of its own, and a cache that was not there before.
export PLIMSOLL_CHECK=$out PLIMSOLL_STATE_DIR=$work/state XDG_CACHE_HOME=$work/cache
is_mock() { [ -n "${PLIMSOLL_CHECK_MOCK:-}" ]; }

# Notes a part: its name, status, seconds, and the reason or the last line that it said.
note() {
    local said=${4//\\/\\\\}
    said=${said//\"/\\\"}
    parts+=("    {\"part\": \"$1\", \"status\": \"$2\", \"seconds\": $3, \"said\": \"$(tr -d '\000-\037' <<<"$said")\"}")
    printf '%-12s %-8s %4s s  %s\n' "$1" "$2" "$3" "$4"
}

skip() { note "$1" skipped 0 "$2"; }

# part NAME LIMIT COMMAND...: no longer than LIMIT seconds, nor than the budget. What it says goes to OUT/NAME.log.
part() {
    local name=$1 limit=$2 begun=$SECONDS left status
    shift 2
    left=$((budget - SECONDS))
    if [ "$left" -le 0 ]; then
        skip "$name" "no time is left"
        return 0
    fi
    timeout --kill-after=5 "$((limit < left ? limit : left))" bash -c '"$@"' part "$@" >"$out/$name.log" 2>&1
    status=$?
    if [ $status = 0 ]; then
        note "$name" passed $((SECONDS - begun)) ""
    else
        failed=1
        note "$name" failed $((SECONDS - begun)) "status $status: $(grep -v '^ *$' "$out/$name.log" | grep -m 1 -E 'panicked|rror' || tail -n 1 "$out/$name.log")"
    fi
}

# Tests of a prebuilt test program, one at a time: they look at the whole card.
tests() {
    local program=$here/$1
    shift
    "$program" --test-threads 1 --nocapture "$@"
}

inventory() {
    uname -srm
    command -v nvidia-smi >/dev/null && nvidia-smi -q -d MEMORY,COMPUTE,CLOCK
    [ -n "$python" ] && "$python" -m pip list 2>/dev/null | grep -i -E 'nvidia|cuda|torch|jax|triton'
    "$here/plimsoll" devices -v
    "$here/plimsoll" devices -v --json >"$out/devices.json" || return 1
    grep -q '"compute_capability"' "$out/devices.json" || return 1
    # On a real card all of NVIDIA's libraries are there, without a variable that names them.
    is_mock || ! grep -o '[A-Za-z]* was not found[^"]*' "$out/devices.json"
}

# The loss of a case on GPU:0 and its gradients as files: 20 processes under two lines. All have the same bytes.
bits() {
    local case=$here/cases/mlp_sgd_ref run line fetched
    for run in $(seq 1 "${PLIMSOLL_CHECK_RUNS:-20}"); do
        line=4GiB
        [ $((run % 2)) = 0 ] && line=1GiB
        is_mock && line=$((run % 2 == 0 ? 128 : 192))MiB
        mkdir -p "$work/$run"
        "$here/plimsoll" eval "$case/graph.pb" --init init --feed "x:0=$case/step0_feed0.npy" --feed "y:0=$case/step0_feed1.npy" \
            --fetch "loss:0=$work/$run/loss" --fetch "gradients/net/MatMul_grad/MatMul_1:0=$work/$run/first" \
            --fetch "gradients/net/MatMul_1_grad/MatMul_1:0=$work/$run/second" --memory-limit "GPU:0=$line" >/dev/null || return 1
        for fetched in loss first second; do
            cmp "$work/1/$fetched" "$work/$run/$fetched" || return 1
        done
    done
    echo "{\"processes\": $run, \"lines\": 2, \"equal\": true}" >"$out/bits.json"
}

# One byte less than what is promised is refused.
line() {
    local case=$here/cases/mlp_adam_resource peak said
    peak=$("$here/plimsoll" verify "$case" --json | tr -d ' \n' | grep -o '"name":"[^"]*GPU:0"[^}]*' | grep -o '"planned_peak_bytes":[0-9]*' | grep -o '[0-9]*$') || return 1
    "$here/plimsoll" verify "$case" --fit=off --memory-limit "GPU:0=${peak}B" || return 1
    said=$("$here/plimsoll" verify "$case" --fit=off --memory-limit "GPU:0=$((peak - 1))B" 2>&1) && return 1
    # Refused for that reason, and no other.
    grep -q RESOURCE_EXHAUSTED <<<"$said" || { echo "$said"; return 1; }
    echo "{\"promised_bytes\": $peak, \"one_byte_less\": \"refused\"}" >"$out/line.json"
}

# Times the ways to compute a step; with the table a plan has its name, gives the same values, and is timed beside one without.
tune() {
    local case=$here/cases/mlp_sgd_ref options="--tuned $out/tuned.txt" without with
    local run=("$case/graph.pb" --fetch loss --target train --feed-shape x=32x6 --feed-shape y=32)
    "$here/plimsoll" tune "${run[@]}" --rounds "${PLIMSOLL_CHECK_ROUNDS:-9}" --output "$out/tuned.txt" --json >"$out/tune.json" || return 1
    # shellcheck disable=SC2086
    "$here/plimsoll" plan "${run[@]}" $options --json | grep -q '"costs": *"[-0-9a-z]*-tuned-[0-9a-f]*"' || return 1
    # shellcheck disable=SC2086
    "$here/plimsoll" verify "$case" $options || return 1
    median() { "$here/plimsoll" bench "$case" --runs "${PLIMSOLL_CHECK_STEPS:-200}" --json "$@" | tr -d ' \n' | grep -o '"median_ms":[0-9.e-]*' | cut -d: -f2; }
    # shellcheck disable=SC2086
    without=$(median) && with=$(median $options) && [ -n "$without" ] && [ -n "$with" ] || return 1
    echo "{\"without_ms\": $without, \"with_ms\": $with}" >"$out/tuned.json"
}

sanitize() {
    local tool
    for tool in memcheck racecheck; do
        compute-sanitizer --tool $tool --error-exitcode 9 "$here/plimsoll" verify "$here/cases/mlp_sgd_ref" || return 1
    done
}

judge() {
    "$python" "$here/judges.py" "$out/judges.json" "${PLIMSOLL_CHECK_JUDGES:-160}" "$here/plimsoll" "$here/cases"
}

export here out work python
export -f is_mock tests inventory bits line tune sanitize judge

part inventory 20 inventory
part overhead 25 tests computing card::card_overhead --exact
if is_mock; then
    skip engines "a mock card has no properties that cuDNN would read"
else
    part engines 40 tests computing card::card_engines --exact
fi
part conformance 60 tests computing card::card_conformance --exact
part commits 45 tests computing card::card_commits --exact
part killed 30 tests computing card::card_killed --exact
# shellcheck disable=SC2086
part kernels 150 tests kernels --skip cudnn:: --skip attending:: ${PLIMSOLL_CHECK_KERNELS:-}
part cudnn 120 tests kernels cudnn:: attending::
part bits 40 bits
part line 20 line
export PLIMSOLL_CHECK_PROGRAM="$here/plimsoll verify $here/cases/mlp_adam_resource --json"
part memory 40 tests computing card::card_memory --exact
part launches 40 tests computing card::card_launches --exact
part rates 60 tests computing card::card_rates --exact
part tune 40 tune
if is_mock; then
    skip judges "on a mock card times say nothing"
elif [ -z "$python" ]; then
    skip judges "there is no python3"
else
    part judges 190 judge
fi
if is_mock; then
    skip sanitizer "a mock card runs no code of a card"
elif command -v compute-sanitizer >/dev/null; then
    part sanitizer 60 sanitize
else
    skip sanitizer "compute-sanitizer is not installed"
fi
skip suspend "programs cannot be suspended yet"

{
    printf '{\n  "seconds": %s,\n  "parts": [\n' "$SECONDS"
    for at in "${!parts[@]}"; do
        [ "$at" = 0 ] || printf ',\n'
        printf '%s' "${parts[$at]}"
    done
    printf '\n  ],\n  "results": {'
    comma=
    for file in "$out"/*.json; do
        [ "$(basename "$file")" = check.json ] || [ ! -s "$file" ] && continue
        printf '%s\n    "%s": ' "$comma" "$(basename "$file" .json)"
        cat "$file"
        comma=,
    done
    printf '  }\n}\n'
} >"$work/check.json"
mv "$work/check.json" "$out/check.json"
exit $failed
