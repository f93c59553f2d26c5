//! A future of a task's end. If it is dropped, the task continues.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A future of the end of a task of the same loop.
pub struct Join<T>(Rc<RefCell<State<T>>>);

struct State<T> {
    result: Option<T>,
    waker: Option<Waker>,
}

impl<T> Join<T> {
    /// Returns the future of the result, and the work that computes it.
    pub(crate) fn new(future: impl Future<Output = T>) -> (Self, impl Future<Output = ()>) {
        let state = Rc::new(RefCell::new(State { result: None, waker: None }));
        let shared = Rc::clone(&state);
        let work = async move {
            let result = future.await;
            let mut state = shared.borrow_mut();
            state.result = Some(result);
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        };
        (Self(state), work)
    }

    /// Takes the result, if it is there.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.0.borrow_mut().result.take()
    }
}

impl<T> Future for Join<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(result) = self.take() {
            return Poll::Ready(result);
        }
        self.0.borrow_mut().waker = Some(context.waker().clone());
        Poll::Pending
    }
}
