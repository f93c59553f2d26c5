//! Starts the tasks that run beside the listeners on the control thread. What they do is in their own modules.

use std::sync::Arc;
use std::time::Duration;

use crate::idle_memory::{self, Growth};
use crate::supervise::keep;
use crate::worker::Plan;

/// Starts the tasks that return memory to the system: after a burst, when the embedded store has become full, and the
/// program's pages that were needed rarely.
pub(crate) fn return_memory(tasks: &mut tokio::task::JoinSet<()>, plan: &Arc<Plan>) {
    let release_program_pages = plan.platform.release_program_pages;
    let (embedded, trim_heap) = (plan.embedded.clone(), plan.platform.trim_heap);
    tasks.spawn(async move {
        let mut growth = Growth::default();
        let mut pause = RELEASE_FIRST;
        loop {
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(RELEASE_EVERY);
            let release = move || release_program_pages(PROGRAM_BYTES_MAX);
            let released = tokio::task::spawn_blocking(release).await;
            tracing::trace!(bytes = released.unwrap_or(0), "pages of the program released");
            if embedded.as_ref().is_some_and(|store| growth.has_ended(&store.stats())) {
                let trimmed = tokio::task::spawn_blocking(trim_heap).await;
                tracing::debug!(trimmed = trimmed.unwrap_or(false), "a full store's free memory");
            }
        }
    });
    let plan = Arc::clone(plan);
    tasks.spawn(async move {
        let restarts = &plan.control.restarts_idle_memory;
        keep("idle memory", restarts, || idle_memory::trim(&plan.budgets, plan.platform.trim_heap))
            .await;
    });
}

/// Starts the task that keeps the list of the ring's servers, if there is a ring.
pub(crate) fn watch_members(tasks: &mut tokio::task::JoinSet<()>, plan: &Arc<Plan>) {
    if plan.members.has_ring() {
        tasks.spawn(keep_members(Arc::clone(plan)));
    }
}

/// Like [`watch_members`], as a task of the current `LocalSet`.
pub(crate) fn watch_members_here(tasks: &mut tokio::task::JoinSet<()>, plan: &Arc<Plan>) {
    if plan.members.has_ring() {
        tasks.spawn_local(keep_members(Arc::clone(plan)));
    }
}

async fn keep_members(plan: Arc<Plan>) {
    let restarts = &plan.control.restarts_members;
    keep("members", restarts, || plan.members.watch()).await;
}

/// Starts the task that loads certificates again when their files change and asks servers for theirs, if TLS is used.
pub(crate) fn watch_certificates(tasks: &mut tokio::task::JoinSet<()>, plan: &Arc<Plan>) {
    if plan.tls.is_used() {
        let plan = Arc::clone(plan);
        tasks.spawn(async move {
            let restarts = &plan.control.restarts_tls_watch;
            keep("tls watch", restarts, || async {
                tokio::join!(plan.tls.watch(), plan.tls.servers.watch(&plan));
            })
            .await;
        });
    }
}

/// Starts the task that reads logins again when their files change, if there are any.
pub(crate) fn watch_logins(tasks: &mut tokio::task::JoinSet<()>, plan: &Arc<Plan>) {
    if plan.logins.is_used() {
        let plan = Arc::clone(plan);
        tasks.spawn(async move {
            let restarts = &plan.control.restarts_login_watch;
            keep("login watch", restarts, || plan.logins.watch(&plan.control)).await;
        });
    }
}

/// Starts the task that reads the keys of sealed values again when their file changes, if there is one.
pub(crate) fn watch_value_keys(tasks: &mut tokio::task::JoinSet<()>, plan: &Arc<Plan>) {
    if let Some(keys) = &plan.value_keys {
        let (keys, control) = (Arc::clone(keys), Arc::clone(&plan.control));
        tasks.spawn(async move {
            let restarts = &control.restarts_value_key_watch;
            keep("value key watch", restarts, || keys.watch(&control)).await;
        });
    }
}

/// The time until the first release. A client can fill a small store within a second, and the start has touched twice
/// as many pages as serving needs.
const RELEASE_FIRST: Duration = Duration::from_millis(100);

/// The longest time between two releases, to which it doubles. The pages that serving needs come back in some 100 page
/// faults without I/O.
const RELEASE_EVERY: Duration = Duration::from_secs(5);

/// The memory of files above which pages of the program are released (bytes). Serving needs about 6 MiB of them,
/// because the system maps 64 KiB around each page.
pub(crate) const PROGRAM_BYTES_MAX: usize = 13 << 19;
