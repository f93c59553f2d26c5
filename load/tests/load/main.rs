//! The generator against servers: real memcached, and small ones that misbehave on purpose.

mod memcached;
mod misbehaviour;
mod support;
