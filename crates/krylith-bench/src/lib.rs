//! Krylith: bench.
