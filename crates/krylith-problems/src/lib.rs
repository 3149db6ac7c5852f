//! Krylith: problems.
