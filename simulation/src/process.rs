//! A process of the simulation: tasks that stop together, and end together without a chance to clean up.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::task::LocalSet;

/// A process. Clones share it.
#[derive(Clone, Default)]
pub struct Process(Rc<State>);

#[derive(Default)]
struct State {
    tasks: RefCell<Option<LocalSet>>,
    is_stopped: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Process {
    /// Starts a process and calls `main` in it. It must be called in a task of a `LocalSet`.
    pub fn start<T>(main: impl FnOnce() -> T) -> (Self, T) {
        let process = Self::default();
        let tasks = LocalSet::new();
        let result = {
            let _inside = tasks.enter();
            main()
        };
        *process.0.tasks.borrow_mut() = Some(tasks);
        let runs = process.clone();
        tokio::task::spawn_local(poll_fn(move |context| runs.poll(context)));
        (process, result)
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        *self.0.waker.borrow_mut() = Some(context.waker().clone());
        if self.0.is_stopped.get() {
            return Poll::Pending;
        }
        // It is taken out, so that a task may end its own process.
        let Some(mut tasks) = self.0.tasks.borrow_mut().take() else { return Poll::Ready(()) };
        let polled = Pin::new(&mut tasks).poll(context);
        *self.0.tasks.borrow_mut() = Some(tasks);
        polled
    }

    /// Returns whether the tasks exist. It must not be called by one of them.
    pub fn is_alive(&self) -> bool {
        self.0.tasks.borrow().is_some()
    }

    /// Returns whether the tasks exist and are not stopped. It must not be called by one of them.
    pub fn is_running(&self) -> bool {
        !self.0.is_stopped.get() && self.is_alive()
    }

    /// Stops all tasks until [`Self::resume`], as SIGSTOP does. Its connections stay open.
    pub fn stop(&self) {
        self.0.is_stopped.set(true);
    }

    /// Lets the tasks continue.
    pub fn resume(&self) {
        self.0.is_stopped.set(false);
        self.wake();
    }

    /// Ends all tasks at once, as SIGKILL does. The system closes their connections.
    pub fn kill(&self) {
        let tasks = self.0.tasks.borrow_mut().take();
        drop(tasks);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.0.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// The monotonic clock of a simulated host, which follows the clock of tokio's runtime.
#[derive(Clone, Copy, Debug)]
pub struct HostClock {
    start: tokio::time::Instant,
}

impl HostClock {
    /// Starts a clock at zero.
    pub fn start() -> Self {
        Self { start: tokio::time::Instant::now() }
    }
}

impl units::Clock for HostClock {
    fn now(&self) -> units::Nanos {
        self.start.elapsed().into()
    }
}
