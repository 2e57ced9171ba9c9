#!/bin/bash
# Runs suites with PostgreSQL of several releases of Debian, each in a folder of its own that
# debootstrap fills and chroot enters, so nothing of them is installed on this machine.
#
#   scripts/versions.sh [VERSION...]      13 15 17 18 19 by default; "list" shows where they are from
#
#   SUITES="regress isolation tap"        what to run, as of "make check", with TESTS, PRELOAD, JOBS
#   FOLDER=/var/tmp/gpuvec-versions       where the systems are kept for the next run
#   KEEP=no                               remove each after its run
#   APT_CONF='Acquire::... "...";'        settings of apt in these systems
#
# Needs root and debootstrap.  Prints each version's total, and at the end a table; the exit
# status is 1 if anything failed.  A version whose system cannot be made counts as failed.
set -uo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${SUITES:=regress isolation tap}" "${FOLDER:=/var/tmp/gpuvec-versions}" "${KEEP:=yes}" "${APT_CONF:=}"

# Where a version of PostgreSQL is the release's own; 19 before it is released
release_of() {
	case $1 in
		13) echo bullseye ;;
		15) echo bookworm ;;
		17) echo trixie ;;
		18) echo sid ;;
		19) echo experimental ;;
		*) return 1 ;;
	esac
}

# inside ROOT COMMAND...: mounts and processes of it end with the command
inside() {
	local root=$1
	shift
	unshare --mount --pid --fork --kill-child chroot "$root" /bin/sh -c '
		mount -t proc proc /proc
		mount -t tmpfs tmpfs /dev/shm 2>/dev/null || mkdir -p /dev/shm
		chmod 1777 /dev/shm /tmp
		exec env "$@"' sh "$@"
}

# bootstrap VERSION RELEASE ROOT: an installed system with PostgreSQL and what tests need
bootstrap() {
	local version=$1 release=$2 root=$3 base=$2
	[ "$release" != experimental ] || base=sid
	[ -e "$root/complete" ] && return
	[ -e "$root/etc/apt/sources.list" ] || debootstrap --variant=minbase "$base" "$root" || return
	# the release before is found where debootstrap has found its base
	[ "$release" = "$base" ] || sed "s/ $base / $release /" "$root/etc/apt/sources.list" >"$root/etc/apt/sources.list.d/more.list"
	# of that release PostgreSQL alone is taken
	printf 'Package: src:postgresql-%s src:postgresql-common\nPin: release a=%s\nPin-Priority: 900\n' "$version" "$release" >"$root/etc/apt/preferences.d/postgresql"
	echo "$APT_CONF" >"$root/etc/apt/apt.conf.d/90more"
	# no cluster of its own, which would start
	mkdir -p "$root/etc/postgresql-common/createcluster.d"
	echo "create_main_cluster = false" >"$root/etc/postgresql-common/createcluster.d/none.conf"
	inside "$root" apt-get update -qq &&
		inside "$root" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
			"postgresql-$version" "postgresql-server-dev-$version" gcc libc6-dev libpq-dev make libipc-run-perl procps xz-utils &&
		touch "$root/complete"
}

# check VERSION ROOT: the suites of the sources as they are here
check() {
	rm -rf "$2/gpuvec"
	mkdir -p "$2/gpuvec"
	(cd "$top" && git ls-files --cached --others --exclude-standard -z -- . ':!:tmp_*' | tar -cf - --null -T -) | tar -xf - -C "$2/gpuvec"
	inside "$2" LC_ALL=C.UTF-8 make -s -C /gpuvec check WITH_CUDA=no "SUITES=$SUITES" \
		PG_CONFIG="/usr/lib/postgresql/$1/bin/pg_config" ${TESTS:+"TESTS=$TESTS"} ${PRELOAD:+"PRELOAD=$PRELOAD"} ${JOBS:+"JOBS=$JOBS"}
}

# one VERSION: its total, "N passed, N failed", as the last line
one() {
	local release root=$FOLDER/$1 log=$FOLDER/$1.log
	if ! release=$(release_of "$1"); then
		echo "no release of Debian has PostgreSQL $1" >"$log"
	elif bootstrap "$1" "$release" "$root" >"$log" 2>&1; then
		check "$1" "$root" >>"$log" 2>&1
	fi
	grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1 | grep . || { tail -n 5 "$log" >&2; echo "0 passed, 1 failed"; }
	[ "$KEEP" = yes ] || rm -rf "$root"
}

if [ "${1:-}" = list ]; then
	for version in 13 15 17 18 19; do echo "$version $(release_of $version)"; done
	exit
fi
[ "$(id -u)" = 0 ] || { echo "scripts/versions.sh needs root, for chroot" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "scripts/versions.sh needs debootstrap" >&2; exit 2; }
mkdir -p "$FOLDER"
[ $# != 0 ] || set -- 13 15 17 18 19
totals=()
for version; do
	totals+=("$(printf '%-10s %s' "$version" "$(one "$version")")")
	echo "PostgreSQL ${totals[-1]}"
done
echo
echo "PostgreSQL suites: $SUITES"
printf '%s\n' "${totals[@]}"
printf '%s\n' "${totals[@]}" | awk '{ ok += $2; bad += $4 } END { print ok + 0 " passed, " bad + 0 " failed"; exit bad > 0 }'
