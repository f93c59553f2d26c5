//! Runs of the RPC engine in this process, without sockets: replays of recorded packets, and soaks. Both can compare
//! every answer with a model of the store. They reproduce no figure by themselves.

mod player;
pub mod replay;
mod rows;
pub mod soak;

use rpc_server::RpcService;

pub use player::Tally;
pub(crate) use rows::Quantity;
pub use rows::Replayed;

/// Returns the service with this name in `rpc::services::IDL`.
fn service(name: &str) -> RpcService {
    match name {
        "post_storage" => RpcService::PostStorage,
        "unique_id" => RpcService::UniqueId,
        _ => RpcService::Memcached,
    }
}
