//! Memcached text and meta commands, parsed and composed both ways, sans-I/O.
