//! Traces on real devices and software kernels: `run_trace` starts a registered trace, and every next op is submitted
//! from the turn that finished the one before, without a task of the caller's in between. Ops that no device does
//! (serialize, deserialize, rpc, transforms) are kernels on the calling core; tcp, load-balance and notify are ports of
//! the service. It opens no socket, agrees on no keys, and decides nothing about where a job runs: that is the
//! runtime's policy, as for any job.
//!
//! A trace that fails gives its whole input back ([`TraceError`]), so that a caller's own code can do the work. Which
//! op ran where is in the runtime's metrics, as for any job; what traces did is in [`TraceCounts`].

mod advance;
pub mod bson;
mod config;
mod engine;
mod error;
mod fields;
mod input;
pub mod jobs;
pub mod kernels;
mod live;
mod memory;
mod ports;
pub mod value;

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::trace::Catalog;

pub use config::{TraceConfig, TraceLimits};
pub use error::{Cause, Malformed, TraceError};
pub use input::{Ended, Session, TraceInput};
pub use live::TraceCounts;
pub use ports::{About, Answer, LoadBalance, NoNotify, NoTcp, Notify, PortError, SameCore, Tcp};

use crate::core::Runtime;
use crate::core_loop::Core;
use crate::tokio_adapter::TokioRuntime;
use engine::Engine;
use ports::{Inbox, News};

/// The executor of traces of one runtime. Clones share it.
#[derive(Clone)]
pub struct Traces {
    core: Rc<RefCell<Runtime>>,
    engine: Rc<RefCell<Engine>>,
    inbox: Rc<Inbox>,
}

impl Traces {
    /// On a runtime in tokio.
    ///
    /// # Panics
    /// If the runtime has an executor of traces.
    pub fn in_tokio(runtime: &TokioRuntime, config: TraceConfig) -> Self {
        let (core, kick) = runtime.shared();
        Self::on(core, Box::new(kick), config)
    }

    /// On a core of our own loop.
    ///
    /// # Panics
    /// If the core has an executor of traces.
    pub fn on_core(core: &Core, config: TraceConfig) -> Self {
        // Whoever tells it something is a task of the loop, which turns the runtime before it sleeps.
        Self::on(core.shared(), Box::new(|| {}), config)
    }

    fn on(core: Rc<RefCell<Runtime>>, kick: Box<dyn Fn()>, config: TraceConfig) -> Self {
        let inbox = Inbox::new(kick);
        let engine = Rc::new(RefCell::new(Engine::new(config, Rc::clone(&inbox))));
        core.borrow_mut().set_follower(Rc::clone(&engine) as _);
        Self { core, engine, inbox }
    }

    /// Starts the trace now and returns a future of its first end. Dropped before that, the future gives the trace up;
    /// paths that go on after it (a write to a cache beside the answer) go on by themselves.
    pub fn run_trace(&self, name: &str, input: TraceInput) -> RunTrace {
        let started = self.engine.borrow_mut().start(&mut self.core.borrow_mut(), name, input);
        if started.is_ok() {
            self.inbox.kick();
        }
        let state = started.map_err(Some);
        RunTrace { engine: Rc::clone(&self.engine), inbox: Rc::clone(&self.inbox), state }
    }

    /// Registers these traces in place of those before. What is under way goes on as it began.
    pub fn set_catalog(&self, catalog: Catalog) {
        self.engine.borrow_mut().set_catalog(catalog);
    }

    /// What it did since its start.
    pub fn counts(&self) -> TraceCounts {
        self.engine.borrow().counts()
    }

    /// Traces under way, with those whose end nobody has looked at yet.
    pub fn live(&self) -> usize {
        self.engine.borrow().live()
    }
}

/// A trace under way.
pub struct RunTrace {
    engine: Rc<RefCell<Engine>>,
    inbox: Rc<Inbox>,
    /// Its run until that is claimed, or why it was not started.
    state: Result<u64, Option<Box<TraceError>>>,
}

impl Future for RunTrace {
    type Output = Result<Ended, Box<TraceError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            Err(refused) => {
                Poll::Ready(Err(refused.take().expect("a trace that has ended is polled no more")))
            }
            Ok(key) => {
                let key = *key;
                let told = self.engine.borrow_mut().claim(key, context.waker());
                if told.is_ready() {
                    self.state = Err(None);
                }
                told
            }
        }
    }
}

impl Drop for RunTrace {
    fn drop(&mut self) {
        if let Ok(key) = self.state {
            self.inbox.put(News::GivenUp(key));
        }
    }
}
