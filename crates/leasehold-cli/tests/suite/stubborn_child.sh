#!/bin/sh
# Stands in for `leasehold demo-worker --users N …` and ignores the end of its input. While it runs,
# it keeps the named pipe open whose path is the URL. The child with 6 users fails before it is ready.
[ "$3" = 6 ] && exit 1
exec 3>"$LEASEHOLD_URL"
echo ready
exec sleep 1000
