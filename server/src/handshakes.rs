//! The thread that accepts clients with TLS. It performs their handshakes, so that their arithmetic delays no worker.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::accept::Dispatcher;
use crate::listeners::TcpSocketListener;
use crate::server::StartError;
use crate::supervise::keep;
use crate::tls;
use crate::worker::Plan;

/// The thread that accepts clients with TLS and performs their handshakes.
pub(crate) struct Handshakes {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Handshakes {
    /// Starts the thread, if there is a listener for it.
    pub(crate) fn start(
        listeners: Vec<TcpSocketListener>,
        dispatcher: &Dispatcher,
        plan: &Arc<Plan>,
    ) -> Result<Option<Self>, StartError> {
        if listeners.is_empty() {
            return Ok(None);
        }
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let executor = executor.map_err(StartError::Thread)?;
        let (end, ended) = oneshot::channel::<()>();
        let (dispatcher, plan) = (dispatcher.clone(), Arc::clone(plan));
        let watched = Arc::clone(&plan.liveness);
        let run = async move {
            let mut tasks = tokio::task::JoinSet::new();
            for TcpSocketListener { listener, protocol, .. } in listeners {
                let (dispatcher, tls) = (dispatcher.clone(), Arc::clone(&plan.tls));
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => drop(tasks.spawn(async move {
                        let restarts = &dispatcher.errors.control.restarts_acceptor;
                        let accept = || tls::accept(&listener, protocol, &dispatcher, &tls);
                        keep("acceptor", restarts, accept).await;
                    })),
                    Err(error) => tracing::error!(%error, "a listener could not be taken over"),
                }
            }
            let _ = ended.await;
            tasks.shutdown().await;
        };
        let thread = std::thread::Builder::new()
            .name("rebate-tls".to_owned())
            .spawn(move || {
                let _watched = watched.watch("the thread of TLS handshakes".to_owned());
                yield_to_others();
                executor.block_on(run);
            })
            .map_err(StartError::Thread)?;
        Ok(Some(Self { end, thread }))
    }

    /// Closes the listeners and ends the handshakes under way.
    pub(crate) fn end(self) {
        drop(self.end);
        let _ = self.thread.join();
    }
}

/// Lowers the priority of the calling thread. New clients then wait for requests of others, and not the reverse.
fn yield_to_others() {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), HANDSHAKE_NICE) {
        tracing::debug!(%error, "the thread of TLS handshakes keeps its priority");
    }
}

/// The niceness of the thread of handshakes. Against one busy thread of normal priority on the same core, it
/// gets about a quarter of the time.
const HANDSHAKE_NICE: i32 = 5;
