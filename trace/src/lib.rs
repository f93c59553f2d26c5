//! The trace language. A trace is a program of ops with sequences, branches on payload fields,
//! transforms, forks and tails to other traces. This crate builds traces in code or reads them from
//! text. It checks, encodes, explains and draws them. It does not run traces, measure time or open
//! files.
//!
//! ```
//! use trace::{Base, Block, Condition, Draft, Format, Trace, Wrap, seq, trans};
//! use units::Op;
//!
//! // \[AccelFlow\] listing 1: a request comes in, and its data may be compressed.
//! let request = Format::new(Base::Protobuf)
//!     .within(Wrap::Message)
//!     .and_then(|message| message.within(Wrap::Encrypted))
//!     .expect("two wraps fit");
//! let path = seq([Op::Tcp, Op::Decrypt, Op::Rpc, Op::Deserialize])
//!     .branch(
//!         Condition::flag("compressed"),
//!         trans(Base::Json, Base::String).seq([Op::Decompress]),
//!         Block::empty(),
//!     )
//!     .seq([Op::LoadBalance])
//!     .notify();
//! let catalog = Draft::default()
//!     .flag("compressed")
//!     .trace(Trace::new("func_req", request, path))
//!     .check()
//!     .expect("no faults");
//! assert_eq!(catalog.encode("func_req", Default::default()).expect("it is there").len(), 32);
//! ```

mod build;
mod catalog;
mod check;
mod condition;
mod decode;
pub mod draw;
mod encode;
mod explain;
mod fault;
mod library;
pub mod limits;
mod payload;
mod program;
mod service;
mod split;
mod text;
mod tree;
mod walk;

pub use build::{Block, BranchArm, Path, seq, trans};
pub use catalog::{Catalog, Draft};
pub use condition::{Comparison, Condition};
pub use decode::DecodeError;
pub use encode::{EncodeError, Head, dump};
pub use explain::explain;
pub use fault::{Fault, Owner, What};
pub use library::{ACCELFLOW, accelflow};
pub use payload::{BadFormat, Base, Format, Wrap};
pub use program::{Instruction, at_mark, compile};
pub use service::{Service, Stage};
pub use split::{SplitError, split};
pub use text::{TextError, draft, format, print, read};
pub use tree::{Branch, End, Field, FieldKind, Fork, Node, Run, Trace};
pub use walk::{Behind, Walked, walk};
