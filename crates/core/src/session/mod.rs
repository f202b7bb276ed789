//! Sender and receiver of a media session, sans-I/O.
