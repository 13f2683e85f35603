#!/bin/sh
# Makes the Temporal namespace default, if it is not there. Ended syncs can be looked at for 30 days.
set -eu
tries=0
until temporal operator cluster health; do
	tries=$((tries + 1))
	if [ "$tries" -ge 60 ]; then exit 1; fi
	sleep 1
done
temporal operator namespace describe --namespace default >/dev/null 2>&1 ||
	temporal operator namespace create --namespace default --retention 720h
