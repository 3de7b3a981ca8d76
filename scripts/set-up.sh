# Source me (bash) in the repository's root: an adequate Node on PATH, and node_modules as the lock file says.

# Networks stall: give up on a silent request early and ask again.
export npm_config_fetch_timeout="${npm_config_fetch_timeout:-15000}"
export npm_config_fetch_retries="${npm_config_fetch_retries:-5}"
export npm_config_fetch_retry_mintimeout="${npm_config_fetch_retry_mintimeout:-500}"
# npm waits ten times longer before each retry, up to a minute: without this bound, a dead network is silent for minutes
export npm_config_fetch_retry_maxtimeout="${npm_config_fetch_retry_maxtimeout:-3000}"

. scripts/use-node.sh

# Runs a command, ended once it has said nothing for the given seconds. However long it works, it may go on.
_until_silent() {
  local seconds="$1" log pid size last=-1 quiet=0 status=0
  shift
  log="$(mktemp)"
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    size="$(wc -c <"$log")"
    if [ "$size" = "$last" ]; then quiet=$((quiet + 1)); else quiet=0 last="$size"; fi
    [ "$quiet" -lt "$seconds" ] || { echo "# silent for $seconds seconds" >>"$log"; kill "$pid" 2>/dev/null; }
  done
  wait "$pid" || status=$?
  [ "$status" = 0 ] || tail -n 20 "$log" >&2
  rm -f "$log"
  return "$status"
}

_installed() {
  [ -f node_modules/.package-lock.json ] && ! [ package-lock.json -nt node_modules/.package-lock.json ]
}

_install() {
  local attempt
  for attempt in 1 2 3; do
    _until_silent 60 npm ci --no-audit --no-fund --no-update-notifier --loglevel=silly && break
    echo "# npm ci failed (attempt $attempt of 3)" >&2
    [ "$attempt" = 3 ] && return 1
    sleep "$attempt"
  done
  # npm may write its own note of what is installed before the lock file's date: this is what _installed compares.
  touch node_modules/.package-lock.json
}

_installed || {
  echo "# npm ci: a minute or so, the first time only" >&2
  _install
}
