//! Rate controllers, one file per algorithm.
