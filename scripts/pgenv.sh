# Shell functions for private PostgreSQL servers with gpuvec.  To be sourced.
#
#   gpuvec_user             who runs servers: nobody but root changes user
#   as_user COMMAND...      run as that user
#   gpuvec_workdir NAME     make $work, a scratch folder that user can write
#   gpuvec_build            build a copy of the sources in $work/src
#   gpuvec_stage            install it into $work/stage
#   gpuvec_settings         settings that make a server find the staged extension
#   gpuvec_start NAME CONF  start a server with data in $work/NAME
#   gpuvec_stop NAME        stop it
#
# Variables: PG_CONFIG, WITH_CUDA, SANITIZE=yes, HOOKS=yes.  Needs bash.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${PG_CONFIG:=pg_config}" "${MAKE:=make}" "${WITH_CUDA:=auto}" "${SANITIZE:=no}" "${HOOKS:=no}"
bindir=$("$PG_CONFIG" --bindir)
sharedir=$("$PG_CONFIG" --sharedir)
pkglibdir=$("$PG_CONFIG" --pkglibdir)
pgversion=$("$PG_CONFIG" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')

# PostgreSQL refuses to run as root: choose somebody else
user=
if [ "$(id -u)" = 0 ]; then
	for candidate in ${GPUVEC_USER:-} postgres pgtest nobody; do
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

# A folder of our own: in the checkout if the user can reach it there
gpuvec_workdir() {
	work=$top/$1
	rm -rf "$work" 2>/dev/null
	mkdir -p "$work" 2>/dev/null && { [ -z "$user" ] || chown "$user" "$work"; }
	if ! as_user test -w "$work" 2>/dev/null; then
		rmdir "$work" 2>/dev/null
		work=$(mktemp -d "${TMPDIR:-/tmp}/gpuvec-${1#tmp_}.XXXXXX")
		[ -z "$user" ] || chown "$user" "$work"
	fi
	# the path of a socket must be short
	sockets=$(mktemp -d /tmp/gpuvec.XXXXXX)
	[ -z "$user" ] || chown "$user" "$sockets"
}

# Sources without what builds left behind
gpuvec_copy_sources() {
	mkdir -p "$work/src"
	(cd "$top" && tar -cf - --exclude=./.git --exclude=./.gpu --exclude=./build --exclude='./tmp_*' \
		--exclude='*.o' --exclude='*.so' --exclude='*.bc' --exclude=./gpuvec-engine .) |
		tar -xf - -C "$work/src"
}

gpuvec_make() {
	local hooks= sanitize=
	[ "$HOOKS" != yes ] || hooks=-DGPUVEC_TEST_HOOKS
	[ "$SANITIZE" != yes ] || sanitize="-fsanitize=address,undefined -fno-sanitize-recover=all"
	"$MAKE" -s -C "$work/src" PG_CONFIG="$PG_CONFIG" WITH_CUDA="$WITH_CUDA" with_llvm=no \
		GPUVEC_CPPFLAGS="$hooks" ENGINE_EXTRA_CFLAGS="$hooks $sanitize" "$@"
}

gpuvec_build() {
	gpuvec_copy_sources
	gpuvec_make -j"$(nproc)" all
}

gpuvec_stage() {
	stage=$work/stage
	gpuvec_make install DESTDIR="$stage" >/dev/null
	[ -z "$user" ] || chown -R "$user" "$work/src"
}

gpuvec_settings() {
	if [ "$pgversion" -ge 18 ]; then
		echo "extension_control_path = '$stage$sharedir:\$system'"
	else
		# a setting of Debian's packages; elsewhere gpuvec must be installed first
		echo "extension_destdir = '$stage'"
	fi
	cat <<-CONF
		dynamic_library_path = '$stage$pkglibdir:\$libdir'
		gpuvec.engine_program = '$stage$bindir/gpuvec-engine'
	CONF
}

# gpuvec_start NAME [CONF]: a server with these additional settings
gpuvec_start() {
	local data=$work/$1
	as_user "$bindir/initdb" -D "$data" -U postgres -A trust -N --locale=C --encoding=UTF8 >/dev/null
	{
		cat <<-CONF
			listen_addresses = ''
			unix_socket_directories = '$sockets'
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
	export PGHOST=$sockets PGUSER=postgres PGDATABASE=postgres
}

gpuvec_stop() {
	[ ! -e "$work/$1/postmaster.pid" ] ||
		as_user "$bindir/pg_ctl" -D "$work/$1" -m "${2:-fast}" -w -s stop
}
