//! Watches for answers. On a tokio executor a task watches, and on a thread without an executor a separate
//! thread does. Both end with the lane. The task polls the memory while that pays (see
//! [`crate::shared::adaptive_polling`]), and otherwise sleeps on the socket. The thread only sleeps, because the
//! queue's owner may poll at any time.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::link::Link;
use crate::shared::adaptive_polling::{AdaptivePolling, POLL_MAX, POLLS_PER_CLOCK_READ};
use crate::shared::doorbell::WatchedSocket;

/// The watcher of a lane. Dropping it ends the watch.
pub(super) enum Watch {
    Task(AbortHandle),
    /// A thread that ends when the socket is closed.
    Thread,
    /// No watcher, because the queue's owner polls.
    None,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Watch::Task(task) = self {
            task.abort();
        }
    }
}

/// Watches in a task of this thread's executor.
pub(super) fn in_task(link: &Arc<Link>, waker: Waker, executor: &Handle) -> std::io::Result<Watch> {
    let doorbell = {
        let _guard = executor.enter();
        WatchedSocket::new(link.socket())?
    };
    Ok(Watch::Task(executor.spawn(watch(Arc::clone(link), doorbell, waker)).abort_handle()))
}

async fn watch(link: Arc<Link>, doorbell: WatchedSocket, waker: Waker) {
    let mut adaptive_polling = AdaptivePolling::new(POLL_MAX);
    loop {
        let polls = link.in_flight() > 0 && !link.shares_its_core() && adaptive_polling.may_poll();
        if polls {
            link.wake_up();
            poll_memory(&link, &waker, &mut adaptive_polling).await;
        }
        // If no one waits for a job, answers are read with those of the next job, because the queue may not be polled
        // earlier.
        if !link.fall_asleep() && link.in_flight() > 0 {
            waker.wake_by_ref();
            yield_now().await;
            continue;
        }
        let may_be_disconnected = tokio::select! {
            doorbell = poll_fn(|task| doorbell.poll(task)) => {
                let Ok(may_be_disconnected) = doorbell else {
                    link.disconnect("its socket cannot be watched");
                    return waker.wake();
                };
                may_be_disconnected
            }
            () = link.submitted.notified() => false,
        };
        if !link.drain_doorbells(may_be_disconnected) {
            return waker.wake();
        }
        if link.in_flight() > 0 && link.has_answers() {
            waker.wake_by_ref();
            yield_now().await;
        }
    }
}

/// Polls the memory until the owner waits for no job or polling no longer pays.
async fn poll_memory(link: &Link, waker: &Waker, adaptive_polling: &mut AdaptivePolling) {
    let mut since = Instant::now();
    let mut polls = 0_u32;
    let mut answered = link.answered();
    loop {
        if link.has_answers() {
            waker.wake_by_ref();
        }
        yield_now().await;
        // An owner that submits a job as soon as it gets an answer never leaves the lane empty, so new answers end a
        // poll too.
        if link.answered() != answered {
            answered = link.answered();
            adaptive_polling.found(since.elapsed());
            since = Instant::now();
            if link.in_flight() == 0 || !adaptive_polling.pays() {
                return;
            }
        } else if link.in_flight() == 0 {
            // The owner has cancelled the jobs that it waited for.
            return;
        }
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(POLLS_PER_CLOCK_READ) && since.elapsed() >= POLL_MAX {
            return adaptive_polling.missed();
        }
    }
}

/// Lets the executor's other tasks run. tokio's own `yield_now` would query the system for events each time.
async fn yield_now() {
    let mut waited = false;
    poll_fn(|task| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        task.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Watches in a thread of its own.
pub(super) fn in_thread(link: &Arc<Link>, waker: Waker) -> std::io::Result<Watch> {
    let link = Arc::clone(link);
    let run = move || {
        loop {
            let mut fds = [PollFd::new(link.socket(), PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => link.disconnect(&format!("its socket cannot be watched: {error}")),
            }
            let goes_on = link.read_socket();
            waker.wake_by_ref();
            if !goes_on {
                return;
            }
        }
    };
    thread::Builder::new().name("lane".to_owned()).spawn(run)?;
    Ok(Watch::Thread)
}
