//! A waker that the benches of several drivers share. It measures nothing.

use std::sync::Arc;
use std::task::Wake;

/// Wakes the waiting task.
#[derive(Default)]
pub(crate) struct Signal(pub(crate) tokio::sync::Notify);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}
