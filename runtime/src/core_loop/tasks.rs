//! The tasks of one loop. A place keeps its waker from task to task, so that a wake costs no allocation and a poll no
//! clone. Which task is polled when is the loop's to say.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use super::wake::{Home, TaskWaker};

/// A task's work.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// All tasks of one loop.
pub(crate) struct Tasks {
    home: Arc<Home>,
    places: Vec<Place>,
    free: Vec<u32>,
}

struct Place {
    flag: Arc<TaskWaker>,
    /// Out while the task is polled.
    active: Option<Active>,
}

/// A task while it is polled.
pub(crate) struct Active {
    work: Option<Work>,
    waker: Waker,
}

impl Active {
    /// Polls the task once; whether it ended.
    #[inline]
    pub(crate) fn poll(&mut self) -> bool {
        let Some(work) = &mut self.work else { return false };
        let ended = work.as_mut().poll(&mut Context::from_waker(&self.waker)).is_ready();
        if ended {
            self.work = None;
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
            self.places.push(Place { flag, active: Some(Active { work: None, waker }) });
            index
        });
        let place = &mut self.places[index as usize];
        if let Some(active) = &mut place.active {
            active.work = Some(work);
        }
        Arc::clone(&place.flag)
    }

    /// Hands the task out to be polled.
    #[inline]
    pub(crate) fn take(&mut self, index: u32) -> Option<Active> {
        let place = &mut self.places[index as usize];
        place.flag.taken();
        place.active.take()
    }

    /// Takes the task back; after its end the place is free.
    #[inline]
    pub(crate) fn put_back(&mut self, index: u32, active: Active, ended: bool) {
        if ended {
            self.free.push(index);
        }
        self.places[index as usize].active = Some(active);
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
    pub(crate) fn give_up(&mut self) -> Vec<Work> {
        let active = self.places.iter_mut().filter_map(|place| place.active.as_mut());
        active.filter_map(|active| active.work.take()).collect()
    }
}
