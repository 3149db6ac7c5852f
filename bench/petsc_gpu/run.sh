#!/bin/bash
# Runs the benchmark on a machine with a GPU:  run.sh FOLDER [checks|python|times|large]...
# Results go to FOLDER: results.jsonl, one line a run, and the output of each run. A run that fails is named at the
# end, and the others go on.
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?a folder for the results}
shift
parts=" ${*:-checks python times} "
mkdir -p "$out"
out=$(cd "$out" && pwd)
failed=()

# CUDA's libraries are those of the toolkit, or of NVIDIA's Python packages.
folders=$here/lib
for name in libcudart.so.13 libcublas.so.13 libcusparse.so.12 libcusolver.so.12 libcurand.so.10 libcufft.so.12 \
    libnvJitLink.so.13 libnvrtc.so.13 libcuda.so.1; do
    found=$(ldconfig -p | sed -n "s|.*$name .*=> ||p" | head -1)
    for place in ${CUDA_HOME:-/usr/local/cuda} /usr/local /opt /usr/lib; do
        [ -n "$found" ] ||
            found=$(find -L "$place" -maxdepth 9 -name "$name" 2>/dev/null | grep -v -e /stubs/ -e /compat/ | head -1)
    done
    [ -n "$found" ] || echo "$name is missing"
    folders=$folders:$(dirname "${found:-/}")
done
export LD_LIBRARY_PATH=$folders:$LD_LIBRARY_PATH
export PETSC_OPTIONS="-dll_append $here/lib/libkrylith_petsc.so"
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-4}
{ date; nvidia-smi; ldd "$here/bin/bench" "$here/lib/libpetsc.so" "$here/lib/libkrylith_petsc.so"; } >"$out/machine.txt" 2>&1
grep -n "not found" "$out/machine.txt"

# run NAME SECONDS WORDS…: one program; its output goes to NAME.log
run() {
    local name=$1 limit=$2
    shift 2
    local begin=$SECONDS
    timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
    local code=$?
    echo "$name: $(grep -m1 residual "$out/$name.log") ($((SECONDS - begin)) s)"
    [ $code = 0 ] && return
    failed+=("$name")
    echo "$name FAILED with $code:"
    grep -E 'PETSC ERROR|rror|Krylith:' "$out/$name.log" | grep -v 'Option left' | head -12 | cut -c 1-200
}

# bench NAME PROBLEM N SECONDS 'OPTIONS OF THE KSP' 'OPTIONS OF THE PC' [MORE]: the PC also for single applications
bench() {
    local words=() word
    for word in $6; do words+=("${word/#-/-apply_}"); done
    run "$2-$3-$1" "$4" "$here/bin/bench" -label "$1" -problem "$2" -n "$3" -mat_type "${TYPE:-aijcusparse}" \
        -out "$out/results.jsonl" -ref_ksp_type "${REFERENCE:-cg}" -ref_pc_type jacobi -apply_ksp_type cg $5 "${words[@]}" $7
}

jacobi="-pc_type jacobi" gamg="-pc_type gamg"
levels="-pc_type gamg -pc_gamg_threshold 0.02 -pc_gamg_aggressive_coarsening 1 -mg_levels_ksp_type chebyshev \
-mg_levels_pc_type jacobi -mg_levels_ksp_max_it 2"
amg="-pc_type krylith -krylith_precond amg" auto="-pc_type krylith"

if [[ $parts == *" checks "* ]]; then
    [ -x "$here/bin/test" ] && run test-host 120 "$here/bin/test"
    for problem in poisson elasticity; do
        for precond in jacobi ildu amg; do
            pc="-pc_type krylith -krylith_precond $precond"
            bench "check-$precond" $problem 20 100 "-ksp_type krylith -krylith_precond $precond" "$pc" "-transposes"
            bench "check-pc-$precond" $problem 20 100 "-ksp_type cg $pc" "$pc" "-transposes"
        done
    done
    for precond in jacobi amg; do
        pc="-pc_type krylith -krylith_precond $precond"
        REFERENCE=gmres bench "check-skew-$precond" poisson 24 100 "-ksp_type krylith -krylith_precond $precond" "$pc" \
            "-transposes -skew 0.3"
    done
    bench check-monitor poisson 20 100 "-ksp_type krylith -ksp_monitor -log_view" "$auto" ""
    bench check-cpu poisson 20 100 "-ksp_type krylith -krylith_device cpu" "$auto -krylith_device cpu" ""
    TYPE=aij bench check-host-matrix poisson 20 100 "-ksp_type krylith -krylith_device cuda" "$auto" ""
fi

# The types in Python, with a petsc4py of this PETSc in python/.
if [[ $parts == *" python "* && -d $here/python ]]; then
    export PYTHONPATH=$here/python
    run python-48 200 "${PYTHON:-python3}" "$here/gpu.py" 48
    run python-128 200 "${PYTHON:-python3}" "$here/gpu.py" 128
    cat "$out"/python-*.log
fi

# systems PROBLEM N SECONDS
systems() {
    bench petsc-cg-jacobi "$1" "$2" "$3" "-ksp_type cg $jacobi" "$jacobi"
    [ "$1" = elasticity ] && bench petsc-cg-pbjacobi "$1" "$2" "$3" "-ksp_type cg -pc_type pbjacobi" "-pc_type pbjacobi"
    bench petsc-cg-gamg "$1" "$2" "$3" "-ksp_type cg $gamg" "$gamg"
    bench petsc-cg-gamg-tuned "$1" "$2" "$3" "-ksp_type cg $levels" "$levels"
    bench krylith-auto "$1" "$2" "$3" "-ksp_type krylith" "$auto"
    bench krylith-amg "$1" "$2" "$3" "-ksp_type krylith -krylith_precond amg" "$amg"
    bench krylith-cg-jacobi "$1" "$2" "$3" "-ksp_type krylith -krylith_method cg -krylith_precond jacobi" \
        "-pc_type krylith -krylith_precond jacobi"
    bench petsc-cg-krylith-amg "$1" "$2" "$3" "-ksp_type cg $amg" "$amg"
}

[[ $parts == *" times "* ]] && { systems poisson 128 100; systems elasticity 64 150; }
[[ $parts == *" large "* ]] && systems poisson 256 200

echo "results: $out/results.jsonl, $(wc -l <"$out/results.jsonl") lines"
[ ${#failed[@]} = 0 ] && echo "all runs succeeded" || echo "FAILED: ${failed[*]}"
