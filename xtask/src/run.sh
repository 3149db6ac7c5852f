#!/usr/bin/env bash
# Conformance tests, then every measurement, on a machine with GPUs and without Rust.
#
#   gpu-out/run.sh            everything
#   gpu-out/run.sh tests      the conformance tests alone
#
# Results go to ${OUT:-gpu-results}: machine.txt, conformance.log, bench.log, raw.tar.gz.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${OUT:-gpu-results}
mkdir -p "$out"
out=$(cd "$out" && pwd)

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
tar -xJf "$here/binaries.tar.xz" -C "$bin"

export RUST_BACKTRACE=0
export NCCL_NVLS_ENABLE=0          # multicast needs a fabric manager that many machines do not run
export KRYLITH_REQUIRE_GPU=1       # a test that finds no GPU fails instead of passing by

{
    date -u +'%Y-%m-%d %H:%M UTC'
    cat "$here/build.txt"
    uname -srm
    lscpu | grep -E '^(Model name|CPU\(s\)):' || true
    nvidia-smi --query-gpu=index,name,driver_version,memory.total,clocks.max.sm,clocks.max.mem --format=csv || true
} > "$out/machine.txt" 2>&1
"$bin/krylith" info >> "$out/machine.txt" 2>&1 || true
cat "$out/machine.txt"

: > "$out/conformance.log"
for test in "$bin"/tests/*; do
    [ -e "$test" ] || continue
    echo "== $(basename "$test")" | tee -a "$out/conformance.log"
    # One test at a time: they share the device and measure its memory. A failure ends this script.
    "$test" --test-threads=1 2>&1 | tee -a "$out/conformance.log"
done
[ "${1:-all}" = tests ] && exit 0

raw=$(mktemp -d)
trap 'tar -czf "$out/raw.tar.gz" -C "$raw" . && rm -rf "$raw" "$bin"' EXIT
: > "$out/bench.log"
failed=0
while read -r suite; do
    echo "== krylith bench $suite" | tee -a "$out/bench.log"
    "$bin/krylith" bench "$suite" --device cuda --out "$raw/$suite" < /dev/null 2>&1 | tee -a "$out/bench.log" || failed=1
done < "$here/suites.txt"

# What several GPUs do together: links, a prediction from them alone, and then the runs that it predicts; the other suites on 1, 2, 4, …
gpus=$(nvidia-smi -L | wc -l)
if [ "$gpus" -gt 1 ]; then
    all=cuda:$(seq -s, 0 $((gpus - 1)))
    counts=$(for n in 1 2 4 8; do [ "$n" -le "$gpus" ] && echo "$n"; done | paste -sd,)
    {
        "$bin/krylith" bench links --device "$all" --out "$raw/links.toml" < /dev/null &&
        "$bin/krylith" model stokes:53x53x54 --machine "$raw/links.toml" --gpus "$counts" --method gmres --precond none \
            --out "$raw/predicted" &&
        "$bin/krylith" bench okp --device "$all" --out "$raw/okp-gpus" < /dev/null &&
        "$bin/krylith" model --compare "$raw/predicted/prediction.json" "$raw/okp-gpus/okp.json"
    } 2>&1 | tee -a "$out/bench.log" || failed=1
    while read -r suite parts; do
        echo "== krylith bench $suite $parts --device $all" | tee -a "$out/bench.log"
        # shellcheck disable=SC2086  # parts are words
        "$bin/krylith" bench "$suite" $parts --device "$all" --out "$raw/$suite-gpus" < /dev/null 2>&1 |
            tee -a "$out/bench.log" || failed=1
    done << 'SUITES'
ildu0
cbcg --parts scaling
spmv --parts single,multi,cg
ras --parts scaling
multilevel --parts scaling
answer
SUITES
fi
exit $failed
