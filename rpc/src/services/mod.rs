//! The services that the engine's workloads call, generated from `rpc/idl`. A test checks that
//! these files are the generator's output for the IDL.

#[rustfmt::skip]
pub mod memcached;
#[rustfmt::skip]
pub mod post_storage;
#[rustfmt::skip]
pub mod unique_id;

/// The IDL of each service, with the name of its module.
pub const IDL: [(&str, &str); 3] = [
    ("memcached", include_str!("../../idl/memcached.thrift")),
    ("post_storage", include_str!("../../idl/post_storage.thrift")),
    ("unique_id", include_str!("../../idl/unique_id.thrift")),
];
