//! The load generator. It sends requests at a fixed offered rate, or as fast as answers come. Latency counts from the
//! time at which each request was *due*, so that a stall of the server counts against every request that it delayed.
//! The load generator compares every byte of the values that it reads. It speaks memcached's protocol to any server,
//! and gRPC to servers of the cache's API. If the generator itself is too slow, the report says so. `watch` computes
//! what a server did from its own statistics. The crate draws no conclusions and starts no servers.

mod address;
mod answer;
mod connection;
mod engine;
mod grpc;
mod poller;
mod recorder;
mod report;
pub mod rpc;
mod run;
mod source;
mod spec;
mod timer;
mod turns;
mod watch;
mod work;

pub use address::{Address, BadAddress, Endpoint, Protocol};
pub use report::{
    ConnectionReport, GeneratorReport, LoadReport, OpReport, Percentiles, PopulateReport,
    WrongBytes,
};
pub use run::{LoadError, Phase, Progress, run};
pub use spec::{BadSpec, LoadSpec, Pace, Payload};
pub use watch::{Class, ClassRate, Dictionaries, Page, Rate, Sample, View};
