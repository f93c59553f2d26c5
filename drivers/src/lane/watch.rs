//! Learning of answers: a task beside a queue on a tokio executor, or a thread beside one on a thread without. Both end
//! with the lane. The task polls the memory while that pays (see [`super::patience`]) and sleeps on the socket
//! otherwise; the thread only sleeps, since its queue's owner may poll as it likes.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::link::Link;
use super::patience::{POLL_MAX, Patience};

/// Who watches; ended by drop.
pub(super) enum Watch {
    Task(AbortHandle),
    /// Ends when the socket does.
    Thread,
    /// The queue's owner polls.
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
    let socket = {
        let _inside = executor.enter();
        UnixStream::from_std(link.socket().try_clone()?)?
    };
    Ok(Watch::Task(executor.spawn(watch(Arc::clone(link), socket, waker)).abort_handle()))
}

async fn watch(link: Arc<Link>, socket: UnixStream, waker: Waker) {
    let mut patience = Patience::default();
    loop {
        let polls = link.inside() > 0 && !link.shares_its_core() && patience.may_poll();
        if polls {
            link.wake_up();
            match poll_memory(&link, &waker).await {
                true => patience.found(),
                false => patience.missed(),
            }
        }
        // Answers to jobs that nobody waits for are read with the next job's: their queue may not be polled before.
        if !link.fall_asleep() && link.inside() > 0 {
            waker.wake_by_ref();
            give_way().await;
            continue;
        }
        tokio::select! {
            ready = socket.readable() => {
                if ready.is_err() {
                    link.lose("its socket cannot be watched");
                    return waker.wake();
                }
                // Forgotten first: what comes after the read is news.
                let nothing = || Err::<(), _>(std::io::ErrorKind::WouldBlock.into());
                let _ = socket.try_io(Interest::READABLE, nothing);
                if !link.listen() {
                    return waker.wake();
                }
            }
            () = link.submitted.notified() => {}
        }
        if link.inside() > 0 && link.has_answers() {
            waker.wake_by_ref();
            give_way().await;
        }
    }
}

/// Looks at the memory until nobody waits for a job (true) or nothing has come for a while.
async fn poll_memory(link: &Link, waker: &Waker) -> bool {
    let mut since = Instant::now();
    let mut looks = 0_u32;
    // Whoever asks again the moment that it is answered never leaves the lane empty: answers count, too.
    let progress = || (link.inside(), link.answered());
    let mut before = progress();
    loop {
        if link.has_answers() {
            waker.wake_by_ref();
        }
        give_way().await;
        let now = progress();
        if now.0 == 0 {
            return true;
        }
        looks = looks.wrapping_add(1);
        if now != before {
            (before, since) = (now, Instant::now());
        } else if looks.is_multiple_of(LOOKS_PER_CLOCK) && since.elapsed() >= POLL_MAX {
            return false;
        }
    }
}

/// Lets the executor's other tasks run. (tokio's own `yield_now` would ask the system for events each time.)
async fn give_way() {
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
                Err(error) => link.lose(&format!("its socket cannot be watched: {error}")),
            }
            let goes_on = link.listen();
            waker.wake_by_ref();
            if !goes_on {
                return;
            }
        }
    };
    thread::Builder::new().name("lane".to_owned()).spawn(run)?;
    Ok(Watch::Thread)
}

/// A look at the memory costs less than one at the clock.
const LOOKS_PER_CLOCK: u32 = 8;
