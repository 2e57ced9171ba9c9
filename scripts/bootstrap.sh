#!/bin/sh
# Makes sure that what "make check", "stress", "demo" and "documents" need is installed.
#
#   scripts/bootstrap.sh check|stress|demo
#
# As root on Debian or Ubuntu it installs what is missing with apt-get; otherwise
# it names the command to type, and fails.  Prints nothing if all is there.  It
# upgrades nothing, and makes, starts and stops no database cluster.
set -eu

goal=${1:-check}
pg_config=${PG_CONFIG:-pg_config}

# Where pg_config says that something is; nothing if it cannot be run
pg() { "$pg_config" "--$1" 2>/dev/null || true; }

have_build_files() { [ -f "$(pg pgxs)" ] && [ -f "$(pg includedir-server)/postgres.h" ]; }
have_server() { [ -x "$(pg bindir)/postgres" ] && [ -x "$(pg bindir)/initdb" ] && [ -x "$(pg bindir)/psql" ]; }
have_compiler() { command -v "${CC:-cc}" >/dev/null 2>&1; }
have_perl() { perl -MTest::More -MIPC::Run -e 1 >/dev/null 2>&1 && command -v prove >/dev/null 2>&1; }
have_libpq() { [ -f "$(pg includedir)/libpq-fe.h" ]; }
have_xz() { command -v xz >/dev/null 2>&1; }

# What is missing, as words
missing() {
	have_build_files || echo build-files
	have_server || echo server
	have_compiler || echo compiler
	case $goal in
		check) have_perl || echo perl ;;
		demo) have_xz || echo xz ;;
	esac
	[ "$goal" = demo ] || have_libpq || echo libpq
}

# The version to install: what is there in part, else the distribution's
version() {
	if have_build_files; then
		pg version | sed 's/[^0-9]*\([0-9]*\).*/\1/'
		return
	fi
	installed=$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null | sed 's|.*/\([0-9]*\)/bin/postgres|\1|' | sort -n | tail -n 1)
	offered=$(apt-cache depends postgresql 2>/dev/null | sed -n 's/.*Depends: postgresql-\([0-9][0-9]*\)$/\1/p' | head -n 1)
	if [ -n "$installed$offered" ]; then
		echo "${installed:-$offered}"
		return
	fi
	# no package lists yet: the versions that releases are known to have
	case $(. /etc/os-release 2>/dev/null; echo "${ID:-}-${VERSION_ID:-}") in
		ubuntu-22.04) echo 14 ;;
		ubuntu-*) echo 16 ;;
		debian-13) echo 17 ;;
		*) echo 15 ;;
	esac
}

# Names of packages for what is missing
packages() {
	for item in $1; do
		case $item in
			build-files) echo "postgresql-server-dev-$(version)" ;;
			server) echo "postgresql-$(version)" ;;
			compiler) echo "gcc libc6-dev" ;;
			perl) echo "libipc-run-perl" ;;
			libpq) echo "libpq-dev" ;;
			xz) echo "xz-utils" ;;
		esac
	done | tr '\n' ' '
}

# A package of a server makes and starts a cluster unless it is told not to
create_no_cluster() {
	mkdir -p /etc/postgresql-common/createcluster.d
	echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/zz-gpuvec.conf
	trap 'rm -f /etc/postgresql-common/createcluster.d/zz-gpuvec.conf
		rmdir /etc/postgresql-common/createcluster.d 2>/dev/null || true' EXIT
}

what=$(missing)
[ -n "$what" ] || exit 0

if [ "$pg_config" != pg_config ] && ! { have_build_files && have_server; }; then
	echo "PG_CONFIG=$pg_config does not lead to a PostgreSQL server with its development files" >&2
	exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
	echo "Please install what is missing:" $what >&2
	echo "(build-files, server: PostgreSQL 13 or later with its development files, pg_config on the PATH;" \
		"libpq: its headers; perl: prove, Test::More and IPC::Run)" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	echo "Some packages are missing; install them with:" >&2
	echo "  sudo apt-get update && sudo apt-get install $(packages "$what")" >&2
	exit 1
fi

export DEBIAN_FRONTEND=noninteractive
# services are left alone
export NEEDRESTART_SUSPEND=1
echo "gpuvec: installing what is missing:" $what >&2
apt-get update -qq >&2
create_no_cluster
# a list of names
# shellcheck disable=SC2046
apt-get install -y -qq --no-upgrade --no-install-recommends $(packages "$what") >&2
what=$(missing)
[ -z "$what" ] || { echo "still missing after the installation:" $what >&2; exit 1; }
