#!/bin/bash
# watch_memory.sh PID FILE: keeps the greatest RssAnon of a process, in kB, in FILE
# until FILE.stop appears or the process ends.  Shared buffers do not count in it.
peak=0
while [ ! -e "$2.stop" ]; do
	while read -r key value _; do
		if [ "$key" = RssAnon: ] && [ "$value" -gt "$peak" ]; then
			peak=$value
			echo "$peak" >"$2"
		fi
	done <"/proc/$1/status" || exit 0
	sleep 0.02
done
