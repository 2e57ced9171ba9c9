#!/bin/bash
# Sees whether the library exports what PostgreSQL looks up in it, and nothing else.
#
#   scripts/exported.sh gpuvec.so
#
# PostgreSQL loads libraries with RTLD_GLOBAL: any other name that one exports could be taken
# for that of another library.  Allowed are functions of SQL, each with its pg_finfo_ function,
# what every library has, and the entry points of background workers.  (That no function is
# missing CREATE EXTENSION finds out.)  Prints each name that is one too many or missing; the
# exit status is 1 if there is any.
set -euo pipefail
export LC_ALL=C

others="Pg_magic_func _PG_init gpuvec_autoprewarm_load gpuvec_autoprewarm_main gpuvec_feeder_main gpuvec_load_pages gpuvec_load_targets gpuvec_read_interactions gpuvec_supervisor_main"
exported=$(nm -D --defined-only "$1" | awk '{print $NF}' | sort -u)
functions=$(sed -n 's/^pg_finfo_//p' <<<"$exported")
allowed=$({ tr ' ' '\n' <<<"$others"; echo "$functions"; sed 's/^/pg_finfo_/' <<<"$functions"; } | sort -u)
wrong=$(
	comm -23 <(echo "$exported") <(echo "$allowed") | sed 's/$/ is exported/'
	comm -13 <(echo "$exported") <(echo "$allowed") | sed 's/$/ is not exported/'
)
[ -n "$wrong" ] || exit 0
printf '%s:\n%s\n' "$1" "$wrong"
exit 1
