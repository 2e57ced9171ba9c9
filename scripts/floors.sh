#!/bin/bash
# Checks that no file includes a header of a floor above its own.
#
#   scripts/floors.sh              exit status 1 if one does
#   scripts/floors.sh --includes   which floor includes which, and how often
#   scripts/floors.sh --house      each file with its floor, and which floor
#                                  stands on which: for scripts/calls.sh
#
# The table below has a floor in each line: its name, the floors that it stands on, and
# its files as shell patterns, where a file belongs to the first floor that has it.  A
# file may include headers of its own floor, of those that it stands on, and of those
# below them.  A floor stands only on floors that come before it in the table, so there
# are no circles.  doc/architecture.md draws the house.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

floors='
# What sessions, engine and kernels share: measures, messages, the arithmetic of pooling
core            -                       src/core/*

# The library that PostgreSQL loads.  Of PostgreSQL: whatever it needs
ground          core                    src/compat.h src/gpuvec.h src/settings.[ch] src/test_hooks.[ch] src/hash_secret.c src/version.c
idset           ground                  src/idset/*
idvec           idset                   src/idvec/*
entries         ground                  src/entries/*
link            ground                  src/link/*
describe        idvec,entries,link      src/mirror/describe/*
pages           describe                src/mirror/pages/*
feed            describe                src/mirror/feed/*
fresh           pages,feed              src/mirror/fresh/*
ask             fresh                   src/mirror/ask/*
prewarm         ask                     src/mirror/prewarm/*
search          ask                     src/search/* src/servers/*
monitor         search                  src/monitor/*
index           search                  src/index/*
embedding       search                  src/embedding/*
recommend       embedding               src/recommend/*
library         prewarm,monitor,index,recommend src/gpuvec.c

# The engine.  Of PostgreSQL: nothing
memory          core                    src/engine/instruction_sets.h src/engine/engine_error.[ch] src/engine/host_memory.[ch] src/engine/hash_secret.c src/engine/control_group.[ch] src/engine/radix_sort.[ch] src/engine/thread_pool.[ch]
backend         memory                  src/engine/backend.h src/engine/segment.[ch] src/engine/segment_read.c src/engine/view.c src/engine/filter_column.[ch] src/engine/equal_filters.[ch] src/engine/groups.[ch] src/engine/overlap_numbers.c src/engine/method_costs.[ch] src/engine/embedding_backend.h src/engine/neighbors_backend.h src/engine/als_backend.h src/engine/slot_bags.h
tools           memory                  src/engine/log.[ch] src/engine/fault.[ch] src/engine/options.[ch]
pooling         memory                  src/engine/embedding/pool_simd.[ch] src/engine/embedding/pool_portable.c src/engine/embedding/pool_avx*.c
shard-vectors    backend,tools,pooling   src/engine/shards/vectors/*
shards          shard-vectors            src/engine/shards/*
factors         backend                 src/engine/als/als_math.* src/engine/als/als_avx*.c src/engine/als/als_portable.c src/engine/als/exact*.[ch] src/engine/als/als_memory.[ch] src/engine/als/key_numbers.h src/engine/als/interactions.h src/engine/als/cpu_solver.[ch]
products        factors                 src/engine/neighbors/product.[ch] src/engine/neighbors/weighted.h
cpu             tools,pooling,products  src/engine/cpu/* src/engine/nocuda/*
store           shards,cpu               src/engine/store/* src/engine/scheduler.[ch]
sets            store                   src/engine/sets/*
vectors         store,pooling           src/engine/embedding/*
als             store                   src/engine/als/*
neighbors       als                     src/engine/neighbors/*
serve           sets,vectors,neighbors  src/engine/serve/* src/engine/main.c

# The kernels.  Of the engine: the interfaces of a backend, errors, memory, threads
device          backend                 kernels/device/*
cuda-search     device                  kernels/search/*
cuda-vectors    device                  kernels/embedding/*
cuda-neighbors  device                  kernels/neighbors/*
cuda-als        device                  kernels/als/*
cuda            cuda-search,cuda-vectors,cuda-neighbors,cuda-als kernels/cuda_backend.cu
'

# Floors whose files may include headers that are not of this repository by their names
# in quotes, as PostgreSQL has them
postgres='ground idset idvec entries link describe pages feed fresh ask prewarm search monitor index embedding recommend library'

# These headers are PostgreSQL's in angle brackets, too
postgres_headers='^(postgres.*|c|fmgr|miscadmin|funcapi|pgstat|libpq.*|varatt|(access|catalog|commands|common|executor|lib|nodes|optimizer|parser|port|portability|postmaster|replication|storage|tcop|utils)/.*)[.]h$'

# floor_files: the files of src and kernels, each with its floor, "-" if it has none
floor_files() {
	find src kernels -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' \) | sort |
		awk -v table="$table" '
		BEGIN {
			floors = split(table, line, "\n")
			for (i = 1; i <= floors; i++) {
				n = split(line[i], field, " ")
				name[i] = field[1]
				for (j = 3; j <= n; j++) pattern[i] = pattern[i] (j > 3 ? "|" : "") field[j]
				gsub(/[.]/, "[.]", pattern[i])
				gsub(/[*]/, ".*", pattern[i])
			}
		}
		{
			for (i = 1; i <= floors && $0 !~ "^(" pattern[i] ")$"; i++);
			print i <= floors ? name[i] : "-", $0
		}'
}

table=$(sed 's/#.*//;/^[[:space:]]*$/d' <<<"$floors")
files=$(floor_files)

# every include of them: file, line, kind of quote, name
includes=$(cut -d ' ' -f 2 <<<"$files" | xargs grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' /dev/null |
	sed -E 's/^([^:]*):([0-9]+):[^"<]*(["<])([^">]*)[">].*/\1 \2 \3 \4/')

{
	sed 's/^/floor /' <<<"$table"
	sed 's/^/file /' <<<"$files"
	sed 's/^/include /' <<<"$includes"
} | awk -v mode="${1:-}" -v postgres="$postgres" -v headers="$postgres_headers" '
function fault(text) { print text; faults++ }

# the file of this repository that a file means by a name, or ""
function resolve(file, name,    folder) {
	folder = file
	sub(/[^\/]*$/, "", folder)
	if ((folder name) in floor_of) return folder name
	if (("src/" name) in floor_of) return "src/" name
	if (name in floor_of) return name
	return ""
}

BEGIN {
	n = split(postgres, list, " ")
	for (i = 1; i <= n; i++) uses_postgres[list[i]] = 1
}

$1 == "floor" {
	known[$2] = 1
	below[$2, $2] = 1
	n = $3 == "-" ? 0 : split($3, list, ",")
	for (i = 1; i <= n; i++) {
		if (!(list[i] in known) || list[i] == $2) {
			fault("the table of floors: " $2 " stands on " list[i] ", which does not come before it")
			continue
		}
		for (other in known)
			if ((list[i], other) in below) below[$2, other] = 1
	}
}

$1 == "file" {
	floor_of[$3] = $2
	if ($2 == "-") fault($3 ": no floor of scripts/floors.sh has this file")
}

$1 == "include" {
	file = $2; where = $2 ":" $3; name = $5; mine = floor_of[file]
	if (mine == "-") next
	target = $4 == "\"" ? resolve(file, name) : ""
	if (target != "") {
		theirs = floor_of[target]
		if (theirs == "-") next
		count[mine " -> " theirs]++
		if (!((mine, theirs) in below))
			fault(where ": " mine " includes \"" name "\" of " theirs ", on which it does not stand")
	}
	else if (mine in uses_postgres)
		count[mine " -> PostgreSQL and the system"]++
	else if ($4 == "\"" || name ~ headers)
		fault(where ": " mine " includes " ($4 == "\"" ? "\"" name "\"" : "<" name ">") ", which is not of this repository")
	checked++
}

END {
	if (mode == "--house") {
		for (file in floor_of) print "file", floor_of[file], file
		for (pair in below) {
			split(pair, list, SUBSEP)
			print "below", list[1], list[2]
		}
		exit faults > 0
	}
	if (mode == "--includes")
		for (pair in count) printf "%4d  %s\n", count[pair], pair | "sort -k 2"
	close("sort -k 2")
	if (checked == 0) fault("no include was found")
	printf "floors: %d includes, %d of them not allowed\n", checked, faults
	exit faults > 0
}'
