//! Programs in the kernel. Their sources are `bpf/*.bpf.c`; the objects that clang makes of them
//! are part of the repository, so that building and running this crate takes no clang.

pub(crate) mod events;
pub(crate) mod layout;
pub(crate) mod loader;
pub(crate) mod raw;
