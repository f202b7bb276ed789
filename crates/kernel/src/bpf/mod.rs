//! The kernel's side: what runs there, and how it gets there.

pub(crate) mod asm;
pub(crate) mod btf;
pub(crate) mod layout;
pub(crate) mod monitor;
pub(crate) mod programs;
pub(crate) mod syscall;
