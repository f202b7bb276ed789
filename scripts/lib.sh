# What the scripts here share. To be sourced.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# The official installer of Rust.
: "${RUSTUP_INIT:=https://sh.rustup.rs}"

say() { printf '\n== %s\n' "$*"; }

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# The least version of Rust, from Cargo.toml.
rust_wanted() {
    sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$repository/Cargo.toml"
}

# Whether version $1 is at least version $2.
at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# Whether the cargo that would run now is there and new enough.
rust_found() {
    local version
    version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || return 1
    [ -n "$version" ] && at_least "$version" "$(rust_wanted)"
}

# Makes cargo the one that is new enough: the one of the shell, else rustup's, which a shell that
# was open before rustup came does not know yet.
find_rust() {
    rust_found && return
    PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    export PATH
    rust_found && return
    export RUSTUP_TOOLCHAIN=stable
    rust_found && return
    unset RUSTUP_TOOLCHAIN
    return 1
}

# Runs the command after the title $1 and notes how long it took. A failure ends the script, which
# still says where the time went.
step() {
    current=$1
    local start=$SECONDS
    shift
    say "$current"
    "$@"
    note "$start"
}

# Notes that the current step, begun at $1, is over.
note() {
    took+=("$(printf '%5d s  %s' $((SECONDS - $1)) "$current")")
    current=
}

times() {
    say "where the time went"
    printf '%s\n' "${took[@]}"
}

# On the way out, whichever it is.
finish() {
    local status=$?
    if [ -n "$current" ]; then
        [ ${#took[@]} -eq 0 ] || times
        printf '\n%s: failed\n' "$current" >&2
    fi
    exit "$status"
}

took=()
current=
trap finish EXIT
