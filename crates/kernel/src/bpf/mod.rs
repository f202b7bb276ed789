//! BPF programs. Their sources are `bpf/*.bpf.c`. The compiled objects are part of the repository,
//! so that building this crate does not need clang.

pub(crate) mod events;
pub(crate) mod layout;
pub(crate) mod loader;
pub(crate) mod raw;
