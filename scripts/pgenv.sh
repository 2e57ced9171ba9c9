# shellcheck shell=bash
# Shell functions for private PostgreSQL servers with gpuvec.  To be sourced.
#
#   as_user COMMAND...      run as the user who runs servers: root becomes another
#   gpuvec_workdir NAME     make $work, a scratch folder that user can write
#   gpuvec_build            build a copy of the sources in $work/src; what was built before stays
#   gpuvec_stage            install it into $work/stage
#   gpuvec_settings         settings that make a server find the staged extension
#   gpuvec_start NAME CONF  start a server with data in $work/NAME
#   gpuvec_stop NAME        stop it
#   gpuvec_engines [FOLDER] process ids of engines that run from the staging folder, or of
#                           those of servers whose data folders begin with this
#   gpuvec_coverage JOB     what runs from here on counts its lines in $work/coverage/JOB
#   gpuvec_stress NAME SECONDS SEED [OPTION...]   the randomised tester, in $work/NAME; not two at a time
#
# Variables: PG_CONFIG, WITH_CUDA, CUDA_ARCHS, SANITIZE=yes, COVERAGE=yes, HOOKS=yes (fault injection),
# BUILT_SOURCES, and GPUVEC_USER, whom root becomes (postgres, else nobody).  Needs bash.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${PG_CONFIG:=pg_config}" "${MAKE:=make}" "${WITH_CUDA:=auto}" "${SANITIZE:=no}" "${COVERAGE:=no}" "${HOOKS:=no}"
bindir=$("$PG_CONFIG" --bindir)
sharedir=$("$PG_CONFIG" --sharedir)
pkglibdir=$("$PG_CONFIG" --pkglibdir)
pgversion=$("$PG_CONFIG" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')

# Kernels for the GPUs of this machine.  Without any it is enough that they can be
# compiled; for the oldest, as tests on a GPU prove it for newer ones.
if [ -z "${CUDA_ARCHS:-}" ]; then
	CUDA_ARCHS=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u | xargs)
	[[ $CUDA_ARCHS =~ ^[0-9]+( [0-9]+)*$ ]] || CUDA_ARCHS=80
fi

# PostgreSQL refuses to run as root: choose somebody else
user=
if [ "$(id -u)" = 0 ]; then
	for candidate in ${GPUVEC_USER:-} postgres nobody; do
		if id -u "$candidate" >/dev/null 2>&1; then user=$candidate; break; fi
	done
	[ -n "$user" ] || { echo "PostgreSQL does not run as root; set GPUVEC_USER to an ordinary user" >&2; exit 1; }
fi

as_user() {
	if [ -n "$user" ]; then
		(cd / && exec runuser -u "$user" -- env HOME="$work" "$@")
	else
		"$@"
	fi
}

# Can $work be the scratch folder?  Make cannot have blanks in paths, another run
# may be using it, and the user must be able to write it.
usable_workdir() {
	local pid
	case $work in *[[:space:]\'\"\$:]*) return 1 ;; esac
	if pid=$(cat "$work/pid" 2>/dev/null) && [ -d "/proc/$pid" ]; then
		return 1
	fi
	rm -rf "$work" 2>/dev/null
	mkdir -p "$work" 2>/dev/null || return 1
	[ -z "$user" ] || chown "$user" "$work"
	as_user test -w "$work" 2>/dev/null || { rmdir "$work" 2>/dev/null; return 1; }
}

# A folder of our own: in the checkout if that is possible
gpuvec_workdir() {
	work=$top/$1
	if ! usable_workdir; then
		work=$(mktemp -d "/tmp/gpuvec-${1#tmp_}.XXXXXX")
		[ -z "$user" ] || chown "$user" "$work"
	fi
	echo $$ >"$work/pid"
	# the path of a socket must be short
	sockets=$(mktemp -d /tmp/gpuvec.XXXXXX)
	[ -z "$user" ] || chown "$user" "$sockets"
}

# Settings that objects depend on: folders of builds have names made of them.
# With kernels or without, the objects beside them are the same.
build_settings() {
	printf '%s|' "$PG_CONFIG" "$("$PG_CONFIG" --version)" "$CUDA_ARCHS" "$SANITIZE" "$HOOKS" "${CC:-}" "${CFLAGS:-}" "$PATH"
}

# Makes $work/src: a link to build/check/NUMBER, which stays, so that make compiles only
# what has changed.  A folder of its own, if that one is in use, or cannot be used.
open_build() {
	local kept
	kept=$top/build/check/$(build_settings | cksum | cut -d ' ' -f 1)
	# counts of lines are found by the folder's name
	[[ -z "${BUILT_SOURCES:-}" && "$COVERAGE" != yes && "$work" == "$top"/* ]] && mkdir -p "$kept" && exec {build_lock}>"$kept.lock" &&
		flock -n "$build_lock" && ln -s "$kept" "$work/src" || mkdir -p "$work/src"
}

# forget_build: the next one begins with nothing
forget_build() { rm -f "$work/src/.sources"; }

# The sources without what builds left behind, in $work/new, and their checksums
list_sources() {
	mkdir -p "$work/new"
	(cd "$top" && tar -cf - --exclude=./.git --exclude=./.gpu --exclude=./build --exclude='./tmp_*' \
		--exclude=./test/unit/bin --exclude=./test/bench/bin --exclude=./results \
		--exclude='*.o' --exclude='*.so' --exclude='*.bc' --exclude=./gpuvec-engine .) |
		tar -xf - --no-same-owner -C "$work/new"
	(cd "$work/new" && find . -type f -exec cksum {} + | sort) >"$work/sources"
}

# other_lines FILE OTHER: names of files in lines of FILE that OTHER lacks
other_lines() { comm -23 "$1" "$2" | cut -d ' ' -f 3-; }

# Brings the sources to $work/src.  Those that differ from the last time get the time of
# now.  After a change of makefiles, or if a file has gone, all is built anew.
# BUILT_SOURCES is a folder with almost the same sources, built: only what is newer has to
# be compiled.
gpuvec_copy_sources() {
	local last=$work/src/.sources
	open_build
	[ -z "${BUILT_SOURCES:-}" ] || cp -a "$BUILT_SOURCES/." "$work/src"
	list_sources
	if [ -z "${BUILT_SOURCES:-}" ] && { [ ! -e "$last" ] || other_lines "$last" "$work/sources" | grep -qE '(Makefile|\.mk)$' ||
		comm -23 <(cut -d ' ' -f 3- "$last" | sort) <(cut -d ' ' -f 3- "$work/sources" | sort) | grep -q .; }; then
		find "$work/src/" -mindepth 1 -delete
		: >"$last"
	fi
	if [ -e "$last" ]; then
		(cd "$work/new" && other_lines "$work/sources" "$last" | tr '\n' '\0' | xargs -0r touch)
		(cd "$work/new" && other_lines "$work/sources" "$last" | tar -cf - -T -) | tar -xf - --no-same-owner -C "$work/src"
	else
		cp -a "$work/new/." "$work/src"
	fi
	mv "$work/sources" "$last"
	rm -rf "$work/new"
}

gpuvec_make() {
	local hooks='' sanitize='' coverage=()
	[ "$HOOKS" != yes ] || hooks=-DGPUVEC_TEST_HOOKS
	[ "$SANITIZE" != yes ] || sanitize="-fsanitize=address,undefined -fno-sanitize-recover=all"
	if [ "$COVERAGE" = yes ]; then
		sanitize+=" --coverage -include $work/src/test/unit/coverage.h"
		coverage=(GPUVEC_CFLAGS=--coverage SHLIB_LINK='-lm -lrt --coverage')
	fi
	"$MAKE" -s -C "$work/src" PG_CONFIG="$PG_CONFIG" WITH_CUDA="$WITH_CUDA" CUDA_ARCHS="$CUDA_ARCHS" with_llvm=no \
		GPUVEC_CPPFLAGS="$hooks" ENGINE_EXTRA_CFLAGS="$hooks $sanitize" "${coverage[@]}" "$@"
}

gpuvec_coverage() {
	export GCOV_PREFIX=$work/coverage/${1//\//-} GCOV_PREFIX_STRIP
	GCOV_PREFIX_STRIP=$(tr -dc / <<<"$work/src" | wc -c)
	as_user mkdir -p "$GCOV_PREFIX"
}

gpuvec_build() {
	gpuvec_copy_sources
	gpuvec_make -j"$(nproc)" all
}

gpuvec_stage() {
	stage=$work/stage
	gpuvec_make install DESTDIR="$stage" >/dev/null
	[ -z "$user" ] || chown -R "$user" "$work/src/"
}

gpuvec_settings() {
	if [ "$pgversion" -ge 18 ]; then
		echo "extension_control_path = '$stage$sharedir:\$system'"
	else
		echo "extension_destdir = '$stage'"
	fi
	cat <<-CONF
		dynamic_library_path = '$stage$pkglibdir:\$libdir'
		gpuvec.engine_program = '$stage$bindir/gpuvec-engine'
	CONF
}

# Versions before 18 find extensions in another folder only with a patch that Debian
# and Ubuntu carry
gpuvec_can_stage() {
	[ "$pgversion" -ge 18 ] || grep -q extension_destdir "$bindir/postgres" && return
	echo "This PostgreSQL cannot load an extension from a staging folder (version 18 can, and Debian's older ones)."
	echo "Use \"make install\" and \"make installcheck\" instead."
	return 1
}

# initdb_settings: the environment of test/initdb/initdb
initdb_settings() { echo "INITDB_PROGRAM=$bindir/initdb INITDB_KEPT=$work/initdb"; }

# gpuvec_start NAME [CONF]: a server with these additional settings
gpuvec_start() {
	local data=$work/$1
	as_user mkdir -p "$sockets/$1"
	as_user env $(initdb_settings) "$work/src/test/initdb/initdb" -D "$data" -U postgres -A trust -N --locale=C --encoding=UTF8 >/dev/null
	{
		cat <<-CONF
			listen_addresses = ''
			unix_socket_directories = '$sockets/$1'
			fsync = off
			max_connections = 200
			max_prepared_transactions = 10
			shared_buffers = 256MB
			jit = off
		CONF
		gpuvec_settings
		printf '%s\n' "${2:-}"
	} | as_user tee -a "$data/postgresql.conf" >/dev/null
	if ! as_user "$bindir/pg_ctl" -D "$data" -l "$data/log" -w -s start; then
		tail -n 20 "$data/log" >&2
		return 1
	fi
	export PGHOST=$sockets/$1 PGUSER=postgres PGDATABASE=postgres
}

gpuvec_stop() {
	[ ! -e "$work/$1/postmaster.pid" ] ||
		as_user "$bindir/pg_ctl" -D "$work/$1" -m "${2:-fast}" -w -s stop
}

gpuvec_engines() {
	local process
	for process in /proc/[0-9]*; do
		[ "$(readlink "$process/exe" 2>/dev/null)" = "$stage$bindir/gpuvec-engine" ] || continue
		# a server's working folder is that of its data, and so is its engine's
		[[ $# = 0 || $(readlink "$process/cwd" 2>/dev/null) == "${1:-}"* ]] || continue
		echo "${process#/proc/}"
	done
}

# stress_trouble FOLDER: what shows, after the tester, that something else than it has
# failed: crashes in the logs (signal 9 is the tester's own), and engines that outlive
# their servers
stress_trouble() {
	local round
	grep -hE 'PANIC:|TRAP:|terminated by signal (4|6|7|8|11)\b|ERROR: (Address|Leak)Sanitizer|runtime error:' "$1"/server_*.log
	for ((round = 0; round < 150; round++)); do
		[ -n "$(gpuvec_engines "$1/")" ] || return
		sleep 0.2
	done
	echo "engines are left: $(gpuvec_engines "$1/" | xargs)"
}

# gpuvec_stress NAME SECONDS SEED [OPTION...]: the randomised tester, with its servers in
# $work/NAME.  The last line is "N passed, N failed".
gpuvec_stress() {
	local folder=$work/$1 output=$work/$1.out status trouble ok bad seconds=$2 seed=$3
	shift 3
	as_user mkdir -p "$folder"
	{
		gpuvec_settings
		# only test hooks have this setting
		[ "$HOOKS" != yes ] || echo "gpuvec.cpu_parts = ${CPU_PARTS:-0}"
		[ -z "${DEVICES:-}" ] || echo "gpuvec.devices = '$DEVICES'"
	} | as_user tee "$folder/settings.conf" >/dev/null
	"$MAKE" -s -C "$work/src" -f test/stress/stress.mk PG_CONFIG="$PG_CONFIG" || { echo "0 passed, 1 failed"; return 1; }
	as_user timeout -k 10 $((seconds + 600)) "$work/src/build/stress" --bindir "$bindir" --work "$folder" \
		--sockets "$sockets" --settings "$folder/settings.conf" --engine-program "$stage$bindir/gpuvec-engine" \
		--clock "$work/src/build/clock.so" --seconds "$seconds" --seed "$seed" "$@" 2>&1 | tee "$output"
	status=${PIPESTATUS[0]}
	read -r ok bad < <(sed -nE 's/^seed [0-9]+: ([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$output" | tail -n 1)
	trouble=$(stress_trouble "$folder")
	[ -z "$trouble" ] || { printf '%s\n' "$trouble"; bad=$((${bad:-0} + 1)); }
	[ "$status" = 0 ] || [ "${bad:-0}" != 0 ] || bad=1
	echo "${ok:-0} passed, ${bad:-0} failed"
	[ "${bad:-0}" = 0 ]
}
