# What the scripts here share. To be sourced.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Services and containers may have none.
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
: "${HOME:=/}"
export HOME

say() { printf '\n== %s\n' "$*"; }

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# Ends the script with a reason where nothing can be built.
needs_a_writable_checkout() {
    [ -w "$repository" ] || fail \
        "$repository cannot be written by $(id -un), and what is built goes there. Clone it anew, or chown it."
}

# Builds with cargo and these arguments.
build() {
    cargo "$@" || fail "The build failed; why is said above." \
        "If that is a crate that could not be fetched: the first build needs a network that reaches crates.io."
}

# Whether a directory has libclang.
has_libclang() {
    local found
    for found in "$1"/libclang.so* "$1"/libclang-[0-9]*.so*; do
        [ -e "$found" ] && return
    done
    return 1
}

# Whether one of these directories has the headers of a clang.
has_clang_headers() {
    local place found
    for place in "$@"; do
        for found in "$place"/clang/*/include/stddef.h; do
            [ -e "$found" ] && return
        done
    done
    return 1
}

# Of several libclangs a build takes the newest. If that has no headers, but another one has, says
# so to the build.
choose_libclang() {
    [ -z "${LIBCLANG_PATH:-}" ] || return 0
    local place whole='' part=''
    for place in /usr/lib/llvm-*/lib; do
        has_libclang "$place" || continue
        if has_clang_headers "$place"; then
            whole=$place
        else
            part=$place
        fi
    done
    if [ -n "$part" ] && [ -n "$whole" ]; then
        export LIBCLANG_PATH=$whole
    fi
}
choose_libclang

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
