#!/bin/bash
# Checks what was built: no function is used by a floor below its own, and no
# files use each other in a circle.  Files of one folder of kernels may.
#
#   scripts/calls.sh [FOLDER]   where library and engine were built; here
#
# scripts/floors.sh has the floors, and sees what is included.  A header may
# name a function that lies above it.  So this looks at the symbols of object
# files: for each symbol that a file needs, the file of the same program that
# has it.  An address in a table counts as a call does.
#
# Below is the call that is there all the same, by the file that calls and the
# one that is called: the devices of an engine with CUDA are opened from below.
# Without it tsort can put all files in an order.  A call that is listed and
# not there any more is a fault, unless its files were not built.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export LC_ALL=C
folder=${1:-.}

known='
src/engine/store/devices.c kernels/cuda_backend.cu
'

work=$(mktemp -d) || exit
trap 'rm -rf "$work"' EXIT

# symbols PROGRAM: of its object files: program, source, "has" or "needs",
# symbol
symbols() {
	xargs -r nm -A -P 2>/dev/null |
		sed -En "s#^$folder/(build/)?([^:]*)[.]o: ([^ ]*) ([TDBRVWUC])( .*|\$)#$1 \2 \3 \4#p" |
		sed -E 's/ U$/ needs/;s/ [TDBRVWC]$/ has/'
}

# neither the tests of the engine nor the bitcode of the library
find "$folder/src" -name '*.o' -not -path "$folder/src/engine/*" | symbols library >"$work/symbols"
find "$folder/build/src" "$folder/build/kernels" -name '*.o' 2>/dev/null | symbols engine >>"$work/symbols"

scripts/floors.sh --house >"$work/house"
awk -v edges="$work/edges" -v known="$known" '
function fault(text) { print text; faults++ }

FILENAME ~ /house$/ && $1 == "file" && $3 ~ /[.]cu?$/ { path = $3; sub(/[.][a-z]*$/, "", path); floor[path] = $2; name[path] = $3 }
FILENAME ~ /house$/ && $1 == "below" { below[$2, $3] = 1 }
# an object whose source is no more was built before
FILENAME ~ /symbols$/ && !($2 in name) { next }
FILENAME ~ /symbols$/ && $4 == "has" { home[$1, $3] = $2; built[name[$2]] = 1 }
FILENAME ~ /symbols$/ && $4 == "needs" { needs[++n] = $1 SUBSEP $2 SUBSEP $3 }

END {
	lines = split(known, list, "\n")
	for (i = 1; i <= lines; i++) if (list[i] != "") open[list[i]] = 1
	for (i = 1; i <= n; i++) {
		split(needs[i], need, SUBSEP)
		mine = need[2]
		theirs = home[need[1], need[3]]
		if (theirs == "" || theirs == mine) continue
		checked++
		pair = name[mine] " " name[theirs]
		if (pair in open) {
			used[pair] = 1
			continue
		}
		if (!((floor[mine], floor[theirs]) in below))
			fault(name[mine] ": " floor[mine] " uses " need[3] " of " name[theirs] ", " floor[theirs] ", on which it does not stand")
		if (name[mine] !~ /^kernels/ && !seen[pair]++) print pair >edges
	}
	for (pair in open) {
		split(pair, files, " ")
		if (!(pair in used) && files[1] in built && files[2] in built)
			fault("scripts/calls.sh: " pair ": there is no such call any more")
	}
	if (checked == 0) fault("nothing was built in the folder")
	printf "calls: %d between files, %d faults\n", checked, faults
	exit faults > 0
}' "$work/house" "$work/symbols"
rc=$?

if [ -e "$work/edges" ] && ! tsort "$work/edges" >/dev/null 2>"$work/circles"; then
	echo "files that use each other in a circle, by tsort:"
	sed 's/^tsort: //;/input contains a loop/s/.*/--/' "$work/circles"
	rc=1
fi
exit $rc
