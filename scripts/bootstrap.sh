#!/bin/sh
# Makes sure that what "make check" and "make demo" need is installed.
#
# As root on Debian or Ubuntu it installs what is missing with apt-get; otherwise
# it names the command to type, and fails.  Prints nothing if all is there.
set -eu

pg_config=${PG_CONFIG:-pg_config}

# Is there a PostgreSQL server with its build files?
have_postgres() {
	command -v "$pg_config" >/dev/null 2>&1 || return 1
	pgxs=$("$pg_config" --pgxs 2>/dev/null) && [ -f "$pgxs" ] || return 1
	[ -x "$("$pg_config" --bindir)/postgres" ] || return 1
	[ -f "$("$pg_config" --includedir-server)/postgres.h" ]
}

have_perl() { perl -MTest::More -MIPC::Run -e 1 >/dev/null 2>&1; }
have_compiler() { command -v "${CC:-cc}" >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1; }

missing() {
	have_postgres || echo postgres
	have_perl || echo libipc-run-perl
	have_compiler || echo gcc libc6-dev
	[ "${1:-}" != demo ] || command -v xz >/dev/null 2>&1 || echo xz-utils
}

# Packages for what is missing; the server in the version of the distribution
packages() {
	for item in $1; do
		if [ "$item" = postgres ]; then
			version=$(apt-cache depends postgresql 2>/dev/null |
				sed -n 's/.*Depends: postgresql-\([0-9][0-9]*\)$/\1/p' | head -n 1)
			version=${version:-15}
			echo "postgresql-$version" "postgresql-server-dev-$version"
		else
			echo "$item"
		fi
	done | tr '\n' ' '
}

what=$(missing "${1:-}")
[ -n "$what" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
	echo "gpuvec needs a PostgreSQL server with its development files, a C compiler, Perl's IPC::Run and xz; missing:" $what >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	echo "Some packages are missing; install them with:" >&2
	echo "  sudo apt-get update && sudo apt-get install $(packages "$what")" >&2
	exit 1
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
# the package of the server makes and starts a cluster unless told not to
if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
	mkdir -p /etc/postgresql-common/createcluster.d
	echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.d/gpuvec.conf
fi
apt-get install -y -qq --no-install-recommends $(packages "$what") >&2
rm -f /etc/postgresql-common/createcluster.d/gpuvec.conf
what=$(missing "${1:-}")
[ -z "$what" ] || { echo "still missing after the installation:" $what >&2; exit 1; }
