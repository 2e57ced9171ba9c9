#!/bin/bash
# Runs suites with PostgreSQL of several releases of Debian, each in a folder of its own that
# debootstrap fills and chroot enters, so nothing of them is installed on this machine.
#
#   scripts/versions.sh [VERSION...]      13 15 17 18 19 by default
#   scripts/versions.sh list              where they are from
#   scripts/versions.sh table             what is known of them, as a table of doc/packages.md
#
#   SUITES="regress isolation tap"        what to run, as of "make check", with TESTS, PRELOAD, JOBS
#   OLD=15                                another version, beside which VERSION is installed: the
#                                         test "upgrade" begins with it (pg_upgrade)
#   AT_ONCE=1                             how many versions run at a time
#   FOLDER=/var/tmp/gpuvec-versions       where the systems are kept for the next run
#   KEEP=no                               remove each after its run
#   APT_CONF='Acquire::... "...";'        settings of apt in these systems
#
# Needs root and debootstrap.  Prints each version's total, and at the end a table of all that
# was run, also before; the exit status is 1 if anything failed in this run.  A version whose
# system cannot be made counts as failed.
set -uo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${SUITES:=regress isolation tap}" "${FOLDER:=/var/tmp/gpuvec-versions}" "${KEEP:=yes}" "${APT_CONF:=}" "${OLD:=}" "${AT_ONCE:=1}"

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

# The release whose system it runs in.  Packages of 13 have neither the program that runs
# isolation tests nor the Perl modules; those of 15 serve as well.
base_of() {
	case $1 in
		13) echo bookworm ;;
		19) echo sid ;;
		*) release_of "$1" ;;
	esac
}

# The version whose programs test this one
tester_of() { [ "$1" = 13 ] && echo 15 || echo "$1"; }

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

# packages VERSION: what a system needs to run its tests, and what compiles
packages() {
	local version
	for version in $(printf '%s\n' "$1" "$(tester_of "$1")" | sort -u); do
		echo "postgresql-$version postgresql-server-dev-$version"
	done
	echo gcc libc6-dev libpq-dev make libipc-run-perl procps xz-utils
}

# add VERSION BASE ROOT: install its packages from its release into a system of another one
add() {
	local version=$1 release base=$2 root=$3 pin sources
	local -a names
	release=$(release_of "$version") || return
	[ ! -e "$root/complete-$version" ] || return 0
	if [ "$release" != "$base" ]; then
		# a release is found where debootstrap has found the base
		sed "s/ $base / $release /" "$root/etc/apt/sources.list" >"$root/etc/apt/sources.list.d/$release.list"
		# of an earlier or later release PostgreSQL alone is taken, and what it needs: of an
		# earlier one not its libpq, with which the base's own server cannot be installed
		pin="n=$release" sources="postgresql-$version postgresql-*-$version"
		[ "$release" != experimental ] || pin="a=experimental" sources="src:postgresql-$version src:postgresql-common"
		printf 'Package: %s\nPin: release %s\nPin-Priority: %s\n\n' '*' "$pin" 90 "$sources" "$pin" 900 >"$root/etc/apt/preferences.d/$release"
	fi
	mapfile -t names < <(packages "$version" | tr ' ' '\n')
	inside "$root" apt-get update -qq &&
		inside "$root" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${names[@]}" &&
		touch "$root/complete-$version"
}

# bootstrap VERSION ROOT: a system with PostgreSQL of that version, and of OLD
bootstrap() {
	local version=$1 root=$2 base
	base=$(base_of "$version") || return
	if [ ! -e "$root/etc/apt/apt.conf.d/90more" ]; then
		debootstrap --variant=minbase "$base" "$root" || return
		# no cluster of its own, which would start
		mkdir -p "$root/etc/postgresql-common/createcluster.d"
		echo "create_main_cluster = false" >"$root/etc/postgresql-common/createcluster.d/none.conf"
		echo "$APT_CONF" >"$root/etc/apt/apt.conf.d/90more"
	fi
	for version in $OLD "$version"; do
		add "$version" "$base" "$root" || return
	done
}

# check VERSION ROOT: the suites of the sources as they are here
check() {
	local postgresql=/usr/lib/postgresql built=
	# what the run before has compiled
	[ ! -e "$2/gpuvec/tmp_check/src/gpuvec.so" ] || { rm -rf "$2/built"; mv "$2/gpuvec/tmp_check/src" "$2/built"; }
	rm -rf "$2/gpuvec"
	mkdir -p "$2/gpuvec"
	(cd "$top" && git ls-files --cached --others --exclude-standard -z -- . ':!:tmp_*' | tar -cf - --null -T -) | tar -xf - -C "$2/gpuvec"
	# from 18 on pg_upgrade finds a library there only
	ln -sf "/gpuvec/tmp_check/stage$postgresql/$1/lib/gpuvec.so" "$2$postgresql/$1/lib/gpuvec.so"
	[ ! -e "$2/built" ] || built=/built
	inside "$2" LC_ALL=C.UTF-8 make -s -C /gpuvec check KEEP=yes WITH_CUDA=no "SUITES=$SUITES" ${built:+"BUILT_SOURCES=$built"} PG_CONFIG="$postgresql/$1/bin/pg_config" \
		PG_TESTS="$postgresql/$(tester_of "$1")/lib/pgxs/src/test" ${OLD:+"OLD_PG_CONFIG=$postgresql/$OLD/bin/pg_config"} \
		${TESTS:+"TESTS=$TESTS"} ${PRELOAD:+"PRELOAD=$PRELOAD"} ${JOBS:+"JOBS=$JOBS"}
}

# keep VERSION ROOT LOG: remember what came of each job, with the server's exact version and
# the day.  Of a selection by TESTS only jobs that are the same in a whole run are kept.
keep() {
	local suite job ok bad skip server
	mkdir -p "$FOLDER/results"
	server=$(inside "$2" "/usr/lib/postgresql/$1/bin/postgres" --version | awk '{ print $3 }')
	while read -r suite job ok bad skip; do
		[ -z "${TESTS:-}" ] || [ "$suite" = tap ] || continue
		[ -z "$OLD" ] || [ "$job" != upgrade ] || suite=pg_upgrade-$OLD
		[ "$job" != old ] || continue
		echo "$1 $server $suite $ok $bad ${skip:-0} $(date +%F)" >"$FOLDER/results/$1-$suite-$job"
	done < <(sed -nE 's|^== ([a-z]+)/([^ ]+): ([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?, .*|\1 \2 \3 \4 \6|p' "$3")
}

# one VERSION: its total, "N passed, N failed", as the last line
one() {
	local root=$FOLDER/$1 log=$FOLDER/$1.log
	if ! release_of "$1" >/dev/null; then
		echo "no release of Debian has PostgreSQL $1" >"$log"
	elif bootstrap "$1" "$root" >"$log" 2>&1; then
		check "$1" "$root" >>"$log" 2>&1
		keep "$1" "$root" "$log"
	fi
	grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1 | grep . || { tail -n 5 "$log" >&2; echo "0 passed, 1 failed"; }
	[ "$KEEP" = yes ] || rm -rf "$root"
}

# table: what results are kept, a row for each server and suite
table() {
	echo "| PostgreSQL | from Debian's | suite | passed | failed | skipped | day |"
	echo "|---|---|---|---|---|---|---|"
	cat "$FOLDER"/results/* 2>/dev/null | awk '{
			key = $1 " " $2 " " $3
			ok[key] += $4; bad[key] += $5; skip[key] += $6
			if ($7 > day[key]) day[key] = $7
		}
		END { for (key in ok) print key, ok[key], bad[key], skip[key], day[key] }' | sort -k1,1n -k3,3 |
		while read -r version server suite ok bad skip day; do
			echo "| $server | $(release_of "$version") | ${suite/pg_upgrade-/pg_upgrade from } | $ok | $bad | $skip | $day |"
		done
}

case ${1:-} in
	list)
		for version in 13 15 17 18 19; do echo "$version $(release_of $version)"; done
		exit ;;
	table)
		table
		exit ;;
esac
[ "$(id -u)" = 0 ] || { echo "scripts/versions.sh needs root, for chroot" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "scripts/versions.sh needs debootstrap" >&2; exit 2; }
mkdir -p "$FOLDER"
[ $# != 0 ] || set -- 13 15 17 18 19
totals=$(mktemp)
trap 'rm -f "$totals"' EXIT
for version; do
	[ "$(jobs -rp | wc -l)" -lt "$AT_ONCE" ] || wait -n
	{
		total=$(one "$version")
		echo "PostgreSQL $version $total" | tee -a "$totals"
	} &
done
wait
echo
table
awk '{ ok += $3; bad += $5 } END { print ok + 0 " passed, " bad + 0 " failed"; exit bad > 0 }' "$totals"
