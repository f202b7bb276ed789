//! Paced flows compared with those of ns-2: packet by packet without randomness, by means with
//! random losses. `tests/data/ns2/README.md` describes the runs of ns-2, `docs/rap.md` and
//! `docs/tfrc.md` the results.

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
