//! Encryption and authentication of media sessions, sans-I/O.
//!
//! [`SecureEndpoint`] wraps an [`Endpoint`](tidegate_core::endpoint::Endpoint): it protects what
//! the endpoint sends and unprotects what it receives, as SRTP and SRTCP (RFC 3711, RFC 7714).
//! Driver and session remain unchanged. Keys come from a session description (RFC 4568) or from a
//! handshake that a shared secret authenticates.
//!
//! Randomness is an input: a seed of 32 bytes, from which [`random::Generator`] derives keys.

pub mod endpoint;
pub mod handshake;
pub mod keys;
pub mod random;
pub mod secret;
pub mod srtp;

mod cipher;
mod replay;

pub use endpoint::SecureEndpoint;
pub use keys::MasterKey;
pub use secret::SharedSecret;
