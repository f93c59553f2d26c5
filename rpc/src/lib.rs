//! The near-cache RPC engine of \[Arcalis\] as a pure object. It has commands and completions, the
//! state machines of its two halves, the Thrift protocol, and functions generated from IDL that
//! convert messages to flat records and back. It owns no thread, socket, clock or buffer. A driver
//! (`rpc-server`'s threads or `sim`'s event loop) issues words, lends memory and steps the engine.
//!
//! ```text
//! NetCore  1 Net.Recv --words-->  RxEngine: header, function, recv  --App.Recv-->  2  AppCore
//! NetCore  4 Net.Resp <--frame--  TxEngine: header, resp            <--words-----  3  AppCore
//! ```
//!
//! ```
//! use rpc::services::unique_id::{ComposeUniqueIdResult, UniqueIdService};
//! use rpc::{Code, DataPage, Engine, Interface, Limits, Record, Reply, api, call};
//! use std::sync::Arc;
//!
//! let mut page = DataPage::default();
//! let [net_recv, app_recv, app_resp, net_resp] = [(); 4].map(|()| page.map(4096));
//! let mut engine = Engine::new(Limits::default(), Arc::new(UniqueIdService));
//!
//! // NetCore: a packet, and a buffer for what answers it.
//! let length = call::frame(&UniqueIdService, 0, 7, page.bytes_mut(net_recv).unwrap(), |args| {
//!     args.block(3)
//! }).unwrap();
//! api::net_call_engine_write(&mut engine, net_recv, length).unwrap();
//! api::net_call_engine_read(&mut engine, net_resp).unwrap();
//!
//! // AppCore: the request as a flat record, and the answer as one.
//! api::app_call_engine_read(&mut engine, app_recv).unwrap();
//! while engine.step_rx(&mut page).is_some() {}
//! let done = engine.take(Interface::AppRecv).unwrap();
//! let mut response = page.lend(app_resp).unwrap();
//! let record = Record::read(&page.bytes(app_recv).unwrap()[..done.length]).unwrap();
//! let mut reply = Reply::to(&record, &mut response).unwrap();
//! let result = reply.body.block(ComposeUniqueIdResult::SLOTS).unwrap();
//! reply.body.set(result, ComposeUniqueIdResult::SUCCESS, 42);
//! let length = reply.seal(result);
//! page.put_back(app_resp, response);
//! api::app_call_engine_write(&mut engine, app_resp, length).unwrap();
//!
//! while engine.step_tx(&mut page).is_some() {}
//! let done = engine.take(Interface::NetResp).unwrap();
//! assert_eq!((done.code, done.about), (Code::Done, net_recv));
//! ```

pub mod api;
pub mod call;
mod command;
mod engine;
pub mod flat;
mod functions;
pub mod idl;
mod memory;
mod record;
pub mod services;
pub mod wire;

pub use command::{Address, Code, Command, Completion, Interface, Stalled};
pub use engine::{Engine, Flight, Half, Limits, State, Step, Work};
pub use functions::{Function, Functions};
pub use memory::{DataPage, Memory, Unmapped};
pub use record::{RECORD_HEAD_BYTES, Record, Reply};
