//! Tests the generator against servers: real memcached, a gRPC cache, and small servers that misbehave on purpose.

mod cache;
mod grpc;
mod memcached;
mod misbehaviour;
mod support;
