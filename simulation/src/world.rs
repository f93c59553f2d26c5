//! What all parts of a run share: the network, the history, the trace and what was found wrong.

use std::cell::{Cell, RefCell};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::history::{Answer, Ask, History, Loss, Moment, Record};
use crate::network::Net;
use crate::trace::Trace;

/// The shared parts of a run.
pub struct World {
    /// The network between all hosts.
    pub net: Net,
    /// What happens.
    pub trace: Trace,
    /// What clients asked for.
    pub history: RefCell<History>,
    /// The longest wait of a bystander, and the client (ms).
    pub longest_wait: Cell<(u64, usize)>,
    /// The number of requests of bystanders that were not answered, or with an error.
    pub unanswered: Cell<u64>,
    /// The last error that a bystander was told.
    pub last_error: RefCell<String>,
    /// The date from which long lives of items are counted (Unix seconds).
    pub unix_s: u64,
    problems: RefCell<Vec<String>>,
    start: Instant,
    is_over: Cell<bool>,
    over: Notify,
}

impl World {
    /// Makes the shared parts of a run that starts now.
    pub fn new(net: Net, trace: Trace, unix_s: u64) -> Self {
        Self {
            net,
            trace,
            history: RefCell::default(),
            longest_wait: Cell::default(),
            unanswered: Cell::default(),
            last_error: RefCell::default(),
            unix_s,
            problems: RefCell::default(),
            start: Instant::now(),
            is_over: Cell::new(false),
            over: Notify::new(),
        }
    }

    /// Returns the simulated time (ms).
    pub fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Returns the next place in the order of events.
    pub fn moment(&self) -> Moment {
        self.history.borrow_mut().moment(self.now_ms())
    }

    /// Records that a request begins. Returns its index.
    pub fn begin(&self, record: Record) -> usize {
        self.history.borrow_mut().begin(record)
    }

    /// Records the answer of a request.
    pub fn end(&self, index: usize, answer: Answer) {
        let mut history = self.history.borrow_mut();
        history.end(index, answer, self.now_ms());
        self.trace.note(format_args!("{}", history.records[index]));
    }

    /// Records that items were lost.
    pub fn lose_items(&self, is_certain: bool) {
        let at = self.moment();
        self.history.borrow_mut().losses.push(Loss { at, is_certain });
    }

    /// Records something that is wrong whatever else happens.
    pub fn problem(&self, what: String) {
        self.trace.note(format_args!("WRONG: {what}"));
        let mut problems = self.problems.borrow_mut();
        if problems.len() < PROBLEMS_MAX {
            problems.push(what);
        }
    }

    /// Returns what is wrong so far.
    pub fn problems(&self) -> Vec<String> {
        self.problems.borrow().clone()
    }

    /// Tells the clients that only disturb that they should leave.
    pub fn end_disturbance(&self) {
        self.is_over.set(true);
        self.over.notify_waiters();
    }

    /// Waits until clients that only disturb should leave.
    pub async fn over(&self) {
        while !self.is_over.get() {
            self.over.notified().await;
        }
    }

    /// Returns the number of requests that were answered.
    pub fn answered(&self) -> usize {
        let history = self.history.borrow();
        history.records.iter().filter(|record| record.answer != Answer::Unknown).count()
    }

    /// Returns the number of answered requests of one kind.
    pub fn answered_where(&self, is_counted: impl Fn(&Ask) -> bool) -> u64 {
        let history = self.history.borrow();
        let counted = history
            .records
            .iter()
            .filter(|record| record.answer != Answer::Unknown && is_counted(&record.ask));
        counted.count() as u64
    }
}

/// The problems that are kept.
const PROBLEMS_MAX: usize = 20;
