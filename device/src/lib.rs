//! The device contract: everything that can run tax jobs is a [`Device`], from the calling core to a service on
//! another machine. This crate has the contract, the buffers, the CPU codecs and kernels, and the devices made of
//! them. It does not choose where a job runs (`policy`, `runtime`) and has no foreign code (`drivers`).
//!
//! # Life cycle
//! 1. **Probe.** The code that builds a device returns it or an error that says who must act.
//! 2. **[`Device::open_queue`]**, once per thread. A queue stays on its thread; a device is shared.
//! 3. **[`Queue::try_submit`]** takes a job, or returns it at once in [`Refused`]. It never blocks. It may finish the
//!    job before it returns, but the completion still appears only in `poll`.
//! 4. **[`Queue::poll`]** is the only call that returns completions. Jobs of one queue may finish out of order.
//! 5. **Drop.** Jobs in flight are detached: their buffers live until the device releases them.
//!
//! # What both sides may rely on
//! - A job owns its buffers and always returns, either as [`Completion`] (done or failed) or as [`Refused`].
//! - Callers check [`Capabilities`] first. Every device refuses a job outside them as [`RefusedReason::Unsupported`]
//!   and accepts every job inside them. The contract suite ([`contract`]) checks this on every device.
//! - [`Queue::pending`] counts jobs submitted and not yet returned by `poll`, in constant time.
//! - The device decides how callers learn of completions ([`Waiting`]). An idle service uses no core.
//! - A job may carry the ops that follow it ([`Chain`]). [`Device::successions`] states the pairs of ops that a device
//!   runs without giving the work back. Any device may return the job after any op of the chain.
//! - An output buffer is never written beyond its capacity, and never before `output_offset`.
//! - A result is bit-exact, whichever device made it. A decompressed value is the original or an error.
//! - A codec may use all of an output's space while it works. A kernel ([`Kernel`]) leaves the bytes behind its
//!   result unchanged.
//!
//! # Between tenants
//! Contexts and scratch space are reused from job to job and not wiped, because wiping would cost more than most
//! jobs. Instead, none of their content can be obtained from outside. A result depends on its job alone. It does not
//! depend on earlier jobs of the device or on earlier content of the buffer. Only the bytes of a buffer that
//! [`Buffer::set_len`] declared leave the process. The contract suite checks on every device that results depend on
//! their job alone. The checks include damaged streams and matches that reach in front of the output.
//!
//! Hardware may break this promise and state more bytes than it wrote. An output for a device other than software
//! is therefore wiped if another tenant used it before ([`Buffer::assign_to`]). The bytes behind the result are then
//! the tenant's own or zero.
//!
//! A decryption that fails leaves no plaintext. Memory that a peer maps is the pool of that peer alone.

pub mod buffer;
pub mod chain;
pub mod cipher;
pub mod codec;
pub mod contract;
pub mod dictionary;
pub mod engines;
pub mod faulty;
pub mod function;
pub mod job;
pub mod kernels;
pub mod lane;
pub mod machine;
pub mod near;
pub mod plausible;
pub mod queue;
pub mod software;
pub mod virtual_device;
pub mod worker;

pub use buffer::{Buffer, Input, Memory, MemoryBlock, MemoryId, Pool};
pub use chain::{Chain, Follow, Next, NextInput, StepDone};
pub use cipher::{AssociatedData, ExpandedKey, Key, KeyName, Nonce, TAG_BYTES};
pub use codec::{Codec, Dialect, Engine, EngineError, EngineFactory, Level};
pub use dictionary::{Dictionary, DictionaryError, Train};
pub use faulty::{FaultPlan, Faulty, Loss};
pub use function::{Function, FunctionKind};
pub use job::{Class, Completion, DeviceError, Job, Outcome, Polynomial, Task, TenantId};
pub use kernels::Kernel;
pub use queue::{Capabilities, Device, Queue, Refused, RefusedReason, Successions, Waiting};
pub use software::Software;
pub use virtual_device::{Virtual, VirtualCounters, VirtualOptions};
pub use worker::{Worker, WorkerCores};
