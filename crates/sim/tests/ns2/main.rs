//! Paced flows against those of ns-2: packet by packet where nothing is random, in the mean where losses
//! are. `tests/data/ns2/README.md` says how ns-2 was run, `docs/rap.md` and `docs/tfrc.md` what came out.

mod dumbbell;
mod groups;
mod lab;
mod micro;
mod rap;
mod satellite;
mod shared;
mod sparse;
mod table;
mod tfrc;
