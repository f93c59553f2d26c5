//! The generator against servers: real memcached, a gRPC cache, and small ones that misbehave on
//! purpose.

mod cache;
mod grpc;
mod memcached;
mod misbehaviour;
mod support;
