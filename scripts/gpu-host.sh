#!/bin/bash
# On a machine with an NVIDIA GPU: builds with CUDA, runs all suites on it, the
# kernels under compute-sanitizer, and the benchmark, in one call.
#
#   scripts/gpu-host.sh [PART...]      parts: kernels sanitizer check bench, and not by default
#                                  architectures and stress
#
# "make check" compiles kernels for the GPUs here; "architectures" for all that a build
# is for by default.
#
#   DOCS=8500000 MODES="A B C" CLIENTS=64    of the benchmark
#   CHECK_SECONDS=400 BENCH_SECONDS=500      time limits of the two long parts
#   STRESS_MINUTES=8                         of the randomised tester
#   CUDA_ARCHS=90                            build for this GPU alone
#   LOGS=folder                              where logs go (build/gpu-host)
#
# Servers do not run as root: as root, the suites and the benchmark change to an
# ordinary user by themselves.  Ends with a summary; exit status 1 if a part failed.
set -uo pipefail

cd "$(dirname "$0")/.." || exit
: "${DOCS:=8500000}" "${MODES:=A B C}" "${CLIENTS:=64}" "${CHECK_SECONDS:=480}" "${BENCH_SECONDS:=560}"
: "${STRESS_MINUTES:=8}" "${LOGS:=$PWD/build/gpu-host}"
[ $# -gt 0 ] || set -- kernels sanitizer check bench
mkdir -p "$LOGS"

nvidia-smi -L || { echo "no GPU" >&2; exit 1; }
export WITH_CUDA=yes
if [ -z "${CUDA_ARCHS:-}" ]; then
	capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sort -u | tr -d . | tr '\n' ' ')
	export CUDA_ARCHS=$capability
fi

summary=
# part NAME SECONDS COMMAND...
part() {
	local name=$1 limit=$2 start=$SECONDS
	shift 2
	echo "== $name"
	if timeout "$limit" "$@" >"$LOGS/$name.log" 2>&1; then
		summary+="$name: ok, $((SECONDS - start)) s"$'\n'
	else
		summary+="$name: FAILED ($?), $((SECONDS - start)) s"$'\n'
		failed=yes
		tail -n 40 "$LOGS/$name.log"
	fi
}

failed=
for what in "$@"; do
	case $what in
		kernels)
			part kernels-build 300 make -s -j"$(nproc)" -f test/unit/cuda.mk
			part kernels 300 build/test/cuda_topk full
			part cold 300 build/test/cuda_cold quick
			part als 300 build/test/cuda_als full
			part neighbors 300 build/test/cuda_neighbors full
			tail -qn 1 "$LOGS/kernels.log" "$LOGS/cold.log" "$LOGS/als.log" "$LOGS/neighbors.log"
			part embedding 300 make -s -j"$(nproc)" -f test/unit/embedding.mk check-gpu
			grep -h passed "$LOGS/embedding.log"
			;;
		architectures)
			all=$(mktemp -d)
			git ls-files -co --exclude-standard -z | xargs -0 cp --parents -pt "$all"
			part architectures 600 env -u CUDA_ARCHS make -s -j"$(nproc)" -C "$all" -f test/unit/cuda.mk build/test/cuda_topk
			rm -rf "$all"
			;;
		sanitizer)
			make -s -j"$(nproc)" -f test/unit/cuda.mk >/dev/null
			part memcheck 300 compute-sanitizer --error-exitcode 1 build/test/cuda_topk quick
			part racecheck 600 compute-sanitizer --tool racecheck --error-exitcode 1 build/test/cuda_topk tiny
			part cold-memcheck 300 compute-sanitizer --error-exitcode 1 build/test/cuda_cold quick 1 small
			part cold-racecheck 600 compute-sanitizer --tool racecheck --error-exitcode 1 build/test/cuda_cold emulated 1 ties
			for test in random lengths bits; do
				part "als-$test-memcheck" 300 compute-sanitizer --error-exitcode 1 build/test/cuda_als emulated 1 $test
				part "als-$test-racecheck" 300 compute-sanitizer --tool racecheck --error-exitcode 1 build/test/cuda_als emulated 1 $test
			done
			part neighbors-memcheck 300 compute-sanitizer --error-exitcode 1 build/test/cuda_neighbors quick
			part neighbors-racecheck 600 compute-sanitizer --tool racecheck --error-exitcode 1 build/test/cuda_neighbors emulated
			make -s -j"$(nproc)" -f test/unit/embedding.mk test/bench/bin/bench_embedding
			for tool in memcheck racecheck synccheck; do
				part "embedding-$tool" 300 compute-sanitizer --tool $tool --error-exitcode 1 \
					test/bench/bin/bench_embedding --check 25 --small --no-time
			done
			tail -qn 1 "$LOGS"/*memcheck.log "$LOGS"/*racecheck.log "$LOGS"/*synccheck.log
			;;
		check)
			part check "$CHECK_SECONDS" make check ENGINE=cuda
			tail -n 3 "$LOGS/check.log"
			;;
		bench)
			part bench "$BENCH_SECONDS" make bench ENGINE=cuda DOCS="$DOCS" MODES="$MODES" CLIENTS="$CLIENTS" with_llvm=no
			cat "$LOGS/bench.log"
			;;
		stress)
			part stress $((STRESS_MINUTES * 60 + 300)) make stress ENGINE=cuda MINUTES="$STRESS_MINUTES" CLIENTS=12
			tail -n 30 "$LOGS/stress.log"
			;;
		*)
			echo "unknown part $what" >&2
			exit 2
			;;
	esac
done
echo "== summary"
printf '%s' "$summary"
[ -z "$failed" ]
