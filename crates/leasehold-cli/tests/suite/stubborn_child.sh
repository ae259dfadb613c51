#!/bin/sh
# Stands in for `leasehold demo-worker --users N …` and does not care that its input ends. As long as it lives
# it keeps the named pipe open whose path it gets as URL. The one with 6 users fails before it is ready.
[ "$3" = 6 ] && exit 1
exec 3>"$LEASEHOLD_URL"
echo ready
exec sleep 1000
