//! The tasks of one loop. A place keeps its waker from task to task, so that a wake costs no allocation and a poll no
//! clone. Which task is polled when is the loop's to say.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use super::home::Home;
use super::wake::TaskWaker;

/// A task's work.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// All tasks of one loop.
pub(crate) struct Tasks {
    home: Arc<Home>,
    places: Vec<Rc<Place>>,
    free: Vec<u32>,
}

/// One task after the other.
pub(crate) struct Place {
    flag: Arc<TaskWaker>,
    waker: Waker,
    /// The work; it is taken out while the task is polled.
    work: Cell<Option<Work>>,
}

impl Place {
    /// Polls the task once; whether it ended. From here on it may be woken again.
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

    /// Takes the task in; it waits to be woken.
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

    /// Adds the places that are not known yet; they stay as long as the loop does.
    #[cold]
    pub(crate) fn add_places(&self, known: &mut Vec<Rc<Place>>) {
        known.extend_from_slice(&self.places[known.len()..]);
    }

    /// The task of the place has ended: it is free.
    pub(crate) fn ended(&mut self, index: u32) {
        self.free.push(index);
    }

    /// Makes a task ready that another thread woke: its index came out of that queue.
    pub(crate) fn dequeued(&self, index: u32) {
        self.places[index as usize].flag.dequeued();
    }

    /// Tasks that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Gives every task up, to be dropped by the caller: what a task drops may look for its loop.
    pub(crate) fn give_up(&self) -> Vec<Work> {
        self.places.iter().filter_map(|place| place.work.take()).collect()
    }
}
