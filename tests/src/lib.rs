//! Drives the built binary with real clients, real memcached as oracle.
