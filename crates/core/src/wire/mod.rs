//! Wire formats: views over bytes that cannot panic, and values that cannot be wrong.
