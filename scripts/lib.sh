# Functions shared by the scripts. To be sourced.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Services and containers may lack HOME.
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
: "${HOME:=/}"
export HOME

say() { printf '\n== %s\n' "$*"; }

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# Fails if the checkout is read-only, since build products go there.
needs_a_writable_checkout() {
    [ -w "$repository" ] || fail \
        "$repository is not writable by $(id -un), and build products go there. Clone it again, or chown it."
}

# Runs cargo with these arguments.
build() {
    cargo "$@" || fail "The build failed; the reason is printed above." \
        "If that is a crate that could not be fetched: the first build needs a network that reaches crates.io."
}

# Whether a directory contains libclang.
has_libclang() {
    local found
    for found in "$1"/libclang.so* "$1"/libclang-[0-9]*.so*; do
        [ -e "$found" ] && return
    done
    return 1
}

# Whether one of these directories contains clang's headers.
has_clang_headers() {
    local place found
    for place in "$@"; do
        for found in "$place"/clang/*/include/stddef.h; do
            [ -e "$found" ] && return
        done
    done
    return 1
}

# A build uses the newest libclang. If its headers are missing and another version has them, selects
# that version by LIBCLANG_PATH.
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

# Minimum version of Rust, from Cargo.toml.
rust_wanted() {
    sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$repository/Cargo.toml"
}

# Whether version $1 is at least version $2.
at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# Whether cargo is installed and new enough.
rust_found() {
    local version
    version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || return 1
    [ -n "$version" ] && at_least "$version" "$(rust_wanted)"
}

# Selects a cargo that is new enough: the one on the PATH, else that of rustup, which may be missing
# on the PATH of a shell started before rustup was installed.
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

# Prints the title $1, runs the command and records its duration. A failure ends the script, which
# prints the durations.
step() {
    current=$1
    local start=$SECONDS
    shift
    say "$current"
    "$@"
    note "$start"
}

# Records the duration of the current step, which started at $1.
note() {
    took+=("$(printf '%5d s  %s' $((SECONDS - $1)) "$current")")
    current=
}

times() {
    say "durations"
    printf '%s\n' "${took[@]}"
}

# Runs at every exit.
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
