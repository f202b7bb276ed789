//! Sets the soname of a shared library: of this crate and of `live`.

use std::env;

fn main() {
    // Relative to the folder of the crate that is built. A file that does not exist there is taken
    // for a change, and everything that depends on the crate is compiled again by each build.
    println!("cargo:rerun-if-changed=../kernel/build.rs");
    // The crate is empty on other systems, whose linkers have other options.
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        // Before version 1 the minor version changes the interface.
        let [major, minor] = ["MAJOR", "MINOR"].map(|part| {
            let name = format!("CARGO_PKG_VERSION_{part}");
            env::var(name).expect("cargo sets the version")
        });
        let version = if major == "0" {
            format!("0.{minor}")
        } else {
            major
        };
        let name = env::var("CARGO_PKG_NAME").expect("cargo sets the name");
        let name = name.replace('-', "_");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,lib{name}.so.{version}");
    }
}
