# Source me (bash) in the repository's root: an adequate Node on PATH, and node_modules as the lock file says.

# Networks stall: give up on a silent request early and ask again.
export npm_config_fetch_timeout="${npm_config_fetch_timeout:-15000}"
export npm_config_fetch_retries="${npm_config_fetch_retries:-5}"
export npm_config_fetch_retry_mintimeout="${npm_config_fetch_retry_mintimeout:-500}"
# npm waits ten times longer before each retry, up to a minute: without this bound, a dead network is silent for minutes
export npm_config_fetch_retry_maxtimeout="${npm_config_fetch_retry_maxtimeout:-3000}"

. scripts/use-node.sh

# Runs a command, ended after the given seconds where the machine has `timeout` (macOS has not).
_limited() {
  local seconds="$1"
  shift
  if command -v timeout >/dev/null 2>&1; then timeout "$seconds" "$@"; else "$@"; fi
}

_installed() {
  [ -f node_modules/.package-lock.json ] && ! [ package-lock.json -nt node_modules/.package-lock.json ]
}

_install() {
  local attempt
  for attempt in 1 2 3; do
    _limited 180 npm ci --no-audit --no-fund --no-update-notifier --loglevel=error </dev/null >&2 && break
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
