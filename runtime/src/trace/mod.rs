//! Traces on real devices and software kernels. `run_trace` starts a registered trace. The turn that finishes an op
//! submits the next op, so no task of the caller runs in between. serialize, deserialize, rpc and load-balance are jobs
//! if a device does them; otherwise they are kernels on the calling core, as transforms always are. tcp, load-balance
//! and notify are ports of the service. This module
//! opens no socket and agrees on no keys. The runtime's policy decides where a job runs, like for any job.
//!
//! A trace that fails returns its whole input ([`TraceError`]), so that the caller's code can do the work. The
//! runtime's metrics count where each op ran, like for any job. [`TraceMetrics`] counts the events of traces.

mod advance;
pub mod bson;
mod chain;
mod config;
mod engine;
mod error;
mod fields;
mod functions;
pub mod in_software;
mod input;
pub mod jobs;
pub mod kernels;
mod live;
mod memory;
mod metrics;
mod ports;
pub mod value;

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::trace::Catalog;

pub use config::{TraceConfig, TraceLimits};
pub use error::{Cause, CauseKind, Malformed, TraceError};
pub use input::{Ended, Session, TraceInput};
pub use metrics::{Counted, Ran, TraceMetrics};
pub use ports::{Answer, LoadBalance, NoNotify, NoTcp, Notify, Origin, PortError, SameCore, Tcp};

use crate::core::Runtime;
use crate::core_loop::Core;
use crate::tokio_adapter::TokioRuntime;
use engine::Engine;
use ports::{Event, Inbox};

/// The executor of traces of one runtime. All clones share one executor.
#[derive(Clone)]
pub struct Traces {
    core: Rc<RefCell<Runtime>>,
    engine: Rc<RefCell<Engine>>,
    inbox: Rc<Inbox>,
}

impl Traces {
    /// Creates an executor on a runtime in tokio.
    ///
    /// # Panics
    /// Panics if the runtime already has an executor of traces.
    pub fn in_tokio(runtime: &TokioRuntime, config: TraceConfig) -> Self {
        let (core, wake) = runtime.shared();
        Self::on(core, Box::new(wake), config)
    }

    /// Creates an executor on a core of our own loop.
    ///
    /// # Panics
    /// Panics if the core already has an executor of traces.
    pub fn on_core(core: &Core, config: TraceConfig) -> Self {
        // The events come from tasks of the loop, which turns the runtime before it sleeps.
        Self::on(core.shared(), Box::new(|| {}), config)
    }

    fn on(core: Rc<RefCell<Runtime>>, wake: Box<dyn Fn()>, config: TraceConfig) -> Self {
        let inbox = Inbox::new(wake);
        let engine = Rc::new(RefCell::new(Engine::new(config, Rc::clone(&inbox))));
        core.borrow_mut().set_completion_hook(Rc::clone(&engine) as _);
        Self { core, engine, inbox }
    }

    /// Starts the trace now and returns a future of its first end. Dropping the future before that end cancels the
    /// trace. Paths that continue after the first end (such as a write to a cache in addition to the answer) need no
    /// caller.
    pub fn run_trace(&self, name: &str, input: TraceInput) -> RunTrace {
        let started = self.engine.borrow_mut().start(&mut self.core.borrow_mut(), name, input);
        if started.is_ok() {
            self.inbox.wake();
        }
        let state = started.map_err(Some);
        RunTrace { engine: Rc::clone(&self.engine), inbox: Rc::clone(&self.inbox), state }
    }

    /// Registers these traces in place of the earlier ones. Traces in flight continue with their old programs.
    pub fn set_catalog(&self, catalog: Catalog) {
        self.engine.borrow_mut().set_catalog(catalog);
    }

    /// Returns the counters of the executor, which any thread can read.
    pub fn metrics(&self) -> Arc<TraceMetrics> {
        Arc::clone(&self.engine.borrow().metrics)
    }

    /// Returns the number of traces in flight, including those whose end the caller has not read yet.
    pub fn live(&self) -> usize {
        self.engine.borrow().live()
    }
}

/// A trace in flight.
pub struct RunTrace {
    engine: Rc<RefCell<Engine>>,
    inbox: Rc<Inbox>,
    /// The key of the run until its result is claimed, or the reason why it was not started.
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
                let reported = self.engine.borrow_mut().claim(key, context.waker());
                if reported.is_ready() {
                    self.state = Err(None);
                }
                reported
            }
        }
    }
}

impl Drop for RunTrace {
    fn drop(&mut self) {
        if let Ok(key) = self.state {
            self.inbox.put(Event::GivenUp(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use device::Software;
    use policy::AlwaysSoftware;
    use prost::bytes::Bytes;
    use units::{ManualClock, Nanos};

    use super::*;
    use crate::config::RuntimeConfig;
    use crate::core::completion_hook::CompletionHook;

    /// A TCP port that sends nothing. It keeps the answer handles of all messages, so that the test can answer them
    /// later or never.
    #[derive(Clone, Default)]
    struct Holds(Rc<RefCell<Vec<Answer>>>);

    impl Tcp for Holds {
        fn send(
            &mut self,
            _: &Origin<'_>,
            _: Bytes,
            answer: Option<Answer>,
        ) -> Result<(), PortError> {
            self.0.borrow_mut().extend(answer);
            Ok(())
        }
    }

    #[test]
    fn answered_and_given_up_requests_are_not_awaited() {
        let devices: Vec<Arc<dyn device::Device>> = vec![Arc::new(Software::default())];
        let clock = Arc::new(ManualClock::default());
        let config = RuntimeConfig::new(devices, Arc::new(AlwaysSoftware), clock);
        let core = Runtime::new(config, Waker::noop()).expect("software opens");
        let core = Rc::new(RefCell::new(core));
        let text = "trace ask takes bytes { copy tcp await hear }
        trace hear takes bytes { tcp notify }";
        let catalog = ::trace::read(&[("test", text)]).expect("no faults");
        let port = Holds::default();
        let mut config = TraceConfig::new(catalog);
        config.tcp = Box::new(port.clone());
        let traces = Traces::on(Rc::clone(&core), Box::new(|| {}), config);
        let due = || traces.engine.borrow().due();
        let turn = || {
            core.borrow_mut().turn();
        };
        let ask = || traces.run_trace("ask", TraceInput::new("x"));
        let (first, second) = (ask(), ask());
        assert_eq!(due(), Some(Nanos::secs(1)));
        let answer = port.0.borrow_mut().remove(0);
        answer.give("y", Vec::new());
        turn();
        assert_eq!(due(), Some(Nanos::secs(1)), "the second waits");
        drop(second);
        turn();
        assert_eq!(due(), None, "nobody waits");
        drop(first);
        turn();
        assert_eq!((due(), traces.live()), (None, 0));
    }
}
