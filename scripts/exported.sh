#!/bin/bash
# Sees whether the library exports what PostgreSQL looks up in it, and nothing else, and
# whether its own names are none of the server's.
#
#   scripts/exported.sh gpuvec.so [POSTGRES]
#
# PostgreSQL loads libraries with RTLD_GLOBAL: any other name that one exports could be taken
# for that of another library.  Allowed are functions of SQL, each with its pg_finfo_ function,
# what every library has, and the entry points of background workers.  (That no function is
# missing CREATE EXTENSION finds out.)
#
# A name that the program POSTGRES exports would be taken for the library's own, if the library
# were built such that it is not hidden.  So no object file beside gpuvec.so, in src, may
# define one.
#
# Prints each name that is one too many or missing; the exit status is 1 if there is any.
set -euo pipefail
export LC_ALL=C

# Global names that files define, and each without the version behind it
names() { nm "$@" --defined-only 2>/dev/null | awk 'NF >= 3 && $(NF - 1) ~ /^[A-Z]$/ { sub(/@.*/, "", $NF); print $NF }' | sort -u; }

others="Pg_magic_func _PG_init gpuvec_autoprewarm_load gpuvec_autoprewarm_main gpuvec_feeder_main gpuvec_load_pages gpuvec_load_targets gpuvec_read_interactions gpuvec_supervisor_main"
exported=$(nm -D --defined-only "$1" | awk '{print $NF}' | sort -u)
functions=$(sed -n 's/^pg_finfo_//p' <<<"$exported")
allowed=$({ tr ' ' '\n' <<<"$others"; echo "$functions"; sed 's/^/pg_finfo_/' <<<"$functions"; } | sort -u)
wrong=$(
	comm -23 <(echo "$exported") <(echo "$allowed") | sed 's/$/ is exported/'
	comm -13 <(echo "$exported") <(echo "$allowed") | sed 's/$/ is not exported/'
	if [ $# -gt 1 ]; then
		mapfile -t objects < <(find "$(dirname "$1")/src" -name '*.o' -not -path '*/src/engine/*')
		servers=$(names -D "$2")
		[ -n "$servers" ] || echo "$2 exports nothing"
		comm -12 <(names "${objects[@]}") <(echo "$servers") | sed 's/$/ is a name of the server as well/'
	fi
)
[ -n "$wrong" ] || exit 0
printf '%s:\n%s\n' "$1" "$wrong"
exit 1
