#!/bin/bash
# Compiles the library, the engine and its unit tests for arm64, and runs the tests under an
# emulator of its processor.  The server's test is a program of this machine, whose engine is
# emulated.
#
#   scripts/arm64.sh [TEST...]            library, server, and those of test/unit/unit.mk
#
#   CROSS=aarch64-linux-gnu-              prefix of compiler and binary tools
#   EMULATOR="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
#   FOLDER=/var/tmp/gpuvec-arm64          where it compiles, kept for the next run
#   TEST_SECONDS=1800                     time limit of each test
#   SERVER_TESTS="embed als"              these of the server's only
#
# Debian has both: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user-static.  For the
# library, apt-get fetches the server's development files for arm64, of the version that
# pg_config has here; nothing is installed.  Ends with "N passed, N failed"; the exit status is 1
# if any failed.
set -uo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${CROSS:=aarch64-linux-gnu-}" "${EMULATOR:=qemu-aarch64-static -L /usr/aarch64-linux-gnu}"
: "${FOLDER:=/var/tmp/gpuvec-arm64}" "${TEST_SECONDS:=1800}" "${SERVER_TESTS:=}"

for program in "${CROSS}gcc" "${CROSS}ar" "${EMULATOR%% *}"; do
	command -v "$program" >/dev/null || { echo "scripts/arm64.sh needs $program" >&2; exit 2; }
done

mkdir -p "$FOLDER"
(cd "$top" && git ls-files --cached --others --exclude-standard -z -- . ':!:tmp_*' | tar -cf - --null -T -) | tar -xf - -C "$FOLDER"
cd "$FOLDER" || exit
# shellcheck disable=SC2046
[ $# != 0 ] || set -- library $(make -s -f test/unit/unit.mk tests WITH_CUDA=no) server

# cross MAKEFILE GOAL...
cross() {
	local makefile=$1
	shift
	make -s -j"$(nproc)" -f "test/unit/$makefile.mk" WITH_CUDA=no "ENGINE_CC=${CROSS}gcc" "CC=${CROSS}gcc" "AR=${CROSS}ar" "$@"
}

# emulated PROGRAM: a script that runs it
emulated() {
	printf '#!/bin/sh\nexec %s %s "$@"\n' "$EMULATOR" "$PWD/$1" >"$1.sh"
	chmod +x "$1.sh"
}

# PostgreSQL's development files for arm64, in a folder
server_files() {
	local version options
	version=$(pg_config --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
	[ ! -e "server/$version" ] || return 0
	mkdir -p server/lists/partial server/cache/archives/partial server/state
	options="-o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root
		-o Dir::State=$PWD/server/state -o Dir::State::lists=$PWD/server/lists -o Dir::State::status=/dev/null
		-o Dir::Cache=$PWD/server/cache"
	# shellcheck disable=SC2086
	(cd server && apt-get -qq $options update &&
		apt-get -qq $options download "postgresql-server-dev-$version" "postgresql-client-$version" libpq-dev &&
		for file in *_arm64.deb; do dpkg -x "$file" . || exit; done && touch "$version")
	# what says where they are
	printf '#!/bin/sh\n%s "$@" | sed "s|^/usr/|%s/server/usr/|"\n' "$(command -v pg_config)" "$PWD" >server/pg_config
	chmod +x server/pg_config
	[ -e "server/$version" ]
}

# The library, without warnings, for that processor
compile_library() {
	server_files || return
	make -s -j"$(nproc)" PG_CONFIG="$PWD/server/pg_config" "CC=${CROSS}gcc" with_llvm=no WITH_CUDA=no gpuvec.so || return
	"${CROSS}readelf" -h gpuvec.so | grep -q AArch64 && echo "1 passed, 0 failed"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ cross unit programs && cross server test/unit/bin/gpuvec-engine-plain; } >"$log" 2>&1 || { tail -n 20 "$log"; echo "0 passed, 1 failed"; exit 1; }
! grep 'warning:' "$log" || { echo "0 passed, 1 failed"; exit 1; }
emulated test/unit/bin/gpuvec-engine-plain
make -s -f test/unit/server.mk WITH_CUDA=no test/unit/bin/server_test || exit

passed=0 failed=0
for test; do
	begun=$SECONDS
	if [ "$test" = library ]; then
		compile_library
	elif [ "$test" = server ]; then
		# shellcheck disable=SC2086
		timeout "$TEST_SECONDS" test/unit/bin/server_test test/unit/bin/gpuvec-engine-plain.sh $SERVER_TESTS
	else
		# words of the emulator's command
		# shellcheck disable=SC2086
		timeout "$TEST_SECONDS" $EMULATOR "build/unit/${test}_test"
	fi >"$log" 2>&1
	status=$?
	! grep -q 'warning:' "$log" || status=1
	read -r ok bad < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed.*/\1 \2/p' "$log" | tail -n 1)
	[ "$status" = 0 ] || [ "${bad:-0}" != 0 ] || bad=1
	[ "${bad:-0}" = 0 ] || tail -n 20 "$log"
	echo "== $test: ${ok:-0} passed, ${bad:-0} failed, $((SECONDS - begun)) s"
	passed=$((passed + ${ok:-0})) failed=$((failed + ${bad:-0}))
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
