#!/bin/bash
# Writes anew what pages show of a server: what their statements print, doc/reference.md and
# the charts; called by "make documents".  Look at the difference before it is committed.
set -uo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/pgenv.sh"
unset PGHOST PGPORT PGUSER PGDATABASE PGOPTIONS PGSERVICE MAKEFLAGS MAKELEVEL
export PSQL=$bindir/psql

finish() {
	local status=$?
	trap - EXIT
	[ -d "$work/data" ] && gpuvec_stop data immediate
	rm -rf "$work" "$sockets"
	exit $status
}
gpuvec_workdir tmp_documents
trap finish EXIT
trap 'exit 130' INT TERM

echo "Building gpuvec ..."
if ! { gpuvec_build && gpuvec_stage; } >"$work/build.log" 2>&1; then
	tail -n 30 "$work/build.log" >&2
	exit 1
fi
gpuvec_start data || exit 1
scripts=$top/scripts/documents.pl
perl "$scripts" write "$top/README.md" "$top"/doc/*.md
perl "$scripts" reference >"$work/reference.md" && cp "$work/reference.md" "$top/doc/reference.md"
perl "$top/scripts/charts.pl" >"$work/peers.svg" && cp "$work/peers.svg" "$top/doc/images/peers.svg"
perl "$scripts" check
