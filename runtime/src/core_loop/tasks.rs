//! The tasks of one loop. A place reuses its waker for each of its tasks, so that a wake allocates nothing and a poll
//! clones nothing. The loop decides when a task is polled.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use super::home::Home;
use super::wake::TaskWaker;

/// The future that a task runs.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// All tasks of one loop.
pub(crate) struct Tasks {
    home: Arc<Home>,
    places: Vec<Rc<Place>>,
    free: Vec<u32>,
}

/// A slot that holds one task after the other.
pub(crate) struct Place {
    flag: Arc<TaskWaker>,
    waker: Waker,
    /// The task's future. It is taken out while the task is polled.
    work: Cell<Option<Work>>,
}

impl Place {
    /// Polls the task once and returns whether it ended. The task may be woken again as soon as this begins.
    #[inline]
    pub(crate) fn poll(&self) -> bool {
        self.flag.taken();
        let Some(mut work) = self.work.take() else { return false };
        let ended = work.as_mut().poll(&mut Context::from_waker(&self.waker)).is_ready();
        if !ended {
            self.work.set(Some(work));
        }
        ended
    }
}

impl Tasks {
    pub(crate) fn new(home: &Arc<Home>) -> Self {
        Self { home: Arc::clone(home), places: Vec::new(), free: Vec::new() }
    }

    /// Adds a task, which waits to be woken.
    pub(crate) fn add(&mut self, work: Work) -> Arc<TaskWaker> {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.places.len() as u32;
            let flag = Arc::new(TaskWaker::new(&self.home, index));
            let waker = Waker::from(Arc::clone(&flag));
            self.places.push(Rc::new(Place { flag, waker, work: Cell::default() }));
            index
        });
        let place = &self.places[index as usize];
        place.work.set(Some(work));
        Arc::clone(&place.flag)
    }

    /// Adds the missing places to `known`. A place exists as long as its loop.
    #[cold]
    pub(crate) fn add_places(&self, known: &mut Vec<Rc<Place>>) {
        known.extend_from_slice(&self.places[known.len()..]);
    }

    /// Frees the place of a task that has ended.
    pub(crate) fn ended(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Makes ready the task with this index, which was taken from the queue of tasks that other threads woke.
    pub(crate) fn dequeued(&self, index: u32) {
        self.places[index as usize].flag.dequeued();
    }

    /// Returns the number of tasks that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Removes and returns all tasks. The caller drops them, because a task's destructors may use its loop.
    pub(crate) fn give_up(&self) -> Vec<Work> {
        self.places.iter().filter_map(|place| place.work.take()).collect()
    }
}
