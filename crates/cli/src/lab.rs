//! `tidegate lab`
