//! The delay promise: the highest media rate that keeps a delay bound.
