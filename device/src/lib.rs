//! The device contract: everything that can do tax work is a [`Device`], from the calling core to a
//! service on the other end of a wire. This crate holds the contract, the buffers, the CPU codecs
//! and kernels, and the devices made of them. It does not choose where a job runs (`policy`, `runtime`) and has
//! no foreign code (`drivers`).
//!
//! # Life cycle
//! 1. **Probe.** The code that builds a device returns it or an error that says who must act.
//! 2. **[`Device::open_queue`]**, once per thread. A queue stays on its thread; a device is shared.
//! 3. **[`Queue::try_submit`]** takes a job or hands it back at once in [`Refused`]; it never
//!    blocks. It may finish the job before it returns, but the completion still appears only in
//! 4. **[`Queue::poll`]**, the only place where a completion appears. Jobs of one queue may finish
//!    out of order.
//! 5. **Drop.** Jobs still inside are detached: their buffers live until the device lets go of
//!    them.
//!
//! # What both sides may rely on
//! - A job owns its buffers and always comes back: as [`Completion`] (done or failed) or as
//!   [`Refused`].
//! - Callers ask [`Capabilities`] first. A job outside them is refused as
//!   [`RefusedReason::Unsupported`], on every device in the same way: advertised is accepted, and
//!   the contract suite ([`contract`]) holds every device to it.
//! - [`Queue::pending`] counts jobs submitted and not yet returned by `poll`, in constant time.
//! - The device decides how completions are learnt ([`Waiting`]): an idle service burns no
//!   core.
//! - An output buffer is never written beyond its capacity, and never before `output_offset`.
//! - A result is bit-exact whichever device made it: a decompressed value is the original or an
//!   error.
//! - A codec may use all of the room in an output on its way to a result; a kernel ([`Kernel`])
//!   leaves what lies behind its result untouched.
//!
//! # Between tenants
//! Contexts and scratch are reused from job to job and not wiped: that would cost more than most jobs. Instead nothing
//! of them can be had from outside. A result is a function of its job alone, whatever a device did before and a buffer
//! held before, and of a buffer only what [`Buffer::set_len`] declared leaves the process; the contract suite holds
//! every device to the first, damaged streams and matches that reach before the output included. Hardware may break
//! that promise and state more than it wrote: an output that goes to a device beside software is therefore wiped when
//! it had another user before ([`Buffer::hand_to`]), so that what is beyond the result is the tenant's own or nothing.
//! A decryption that fails leaves no plaintext. Memory that a peer maps is the pool of that peer alone.

pub mod buffer;
pub mod cipher;
pub mod codec;
pub mod contract;
pub mod cores;
pub mod engines;
pub mod faulty;
pub mod job;
pub mod kernels;
pub mod lane;
pub mod plausible;
pub mod queue;
pub mod software;
pub mod virtual_device;
pub mod worker;

pub use buffer::{Buffer, Input, Memory, MemoryBlock, MemoryId, Pool};
pub use cipher::{Key, Nonce, TAG_BYTES};
pub use codec::{Codec, Dialect, Engine, EngineError, EngineFactory, Level};
pub use faulty::{FaultPlan, Faulty, Loss};
pub use job::{Class, Completion, DeviceError, Job, Outcome, Polynomial, Task, TenantId};
pub use kernels::Kernel;
pub use queue::{Capabilities, Device, Queue, Refused, RefusedReason, Waiting};
pub use software::Software;
pub use virtual_device::{Virtual, VirtualCounters, VirtualOptions};
pub use worker::{Worker, WorkerCores};
