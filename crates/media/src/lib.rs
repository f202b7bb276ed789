//! Video sources, encoders, decoder and picture quality.
