//! Compares the model of memcached with the real one.
