//! Names the shared library, so that programs find the one that they were linked with.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // What is built for other machines than Linux has other linkers, and nothing in it.
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        // Before version 1, what fits together has the same minor number too.
        let [major, minor] = ["MAJOR", "MINOR"].map(|part| {
            let name = format!("CARGO_PKG_VERSION_{part}");
            env::var(name).expect("cargo tells the version")
        });
        let version = if major == "0" {
            format!("0.{minor}")
        } else {
            major
        };
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtidegate_kernel.so.{version}");
    }
}
