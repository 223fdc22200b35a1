#!/usr/bin/env bash
# Builds what check.sh runs on a machine with a card, into a folder: bench/gpu/pack.sh FOLDER [CASE...]
# The cases are folders as scripts/write_memory_cases.py writes them: the judges' part times their steps, too.
set -eu
[ $# -ge 1 ] || { sed -n '2,3s/^# \{0,1\}//p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mkdir -p "$1/cases" && cd "$1" && pwd)
shift
cases=
[ $# = 0 ] || cases=$(realpath -- "$@")
cd "$here/../.."
cargo build --release -p plimsoll-cli
place=${CARGO_TARGET_DIR:-target}/release
strip -o "$folder/plimsoll" "$place/plimsoll"
for test in computing kernels; do
    # The last word of the line is the program.
    program=$(cargo test --release -p plimsoll-device-cuda --test $test --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\))/\1/p')
    strip -o "$folder/$test" "$program"
done
cp "$here"/{check.sh,judges.py} "$folder"
for case in crates/cli/tests/cases/{mlp_sgd_ref,mlp_adam_resource,separable_momentum_ref} $cases; do
    cp -r "$case" "$folder/cases"
done
du -sh "$folder"
