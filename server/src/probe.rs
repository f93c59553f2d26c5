//! Probes which servers of the ring answer a worker. Probes use the worker's links, and so the same
//! connections and timeouts as clients' requests. [`crate::readiness`] decides whether the process is ready.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::oneshot;

use crate::backend::{Backend, ProbeSlot};
use crate::members::RingState;
use crate::upstream::{Link, LinkFault, Seen};

/// What one worker found about the servers of the ring. There are none with the embedded store.
#[derive(Clone)]
pub(crate) struct Findings {
    /// The version of the list that the worker uses.
    pub(crate) ring: Option<Arc<RingState>>,
    /// The findings about each server of that list.
    pub(crate) servers: Vec<Finding>,
}

/// What one worker found about one server.
#[derive(Clone, Default)]
pub(crate) struct Finding {
    /// The reason why the server does not answer, or `None`.
    pub(crate) why: Option<String>,
    /// True if it has not answered anything in time, although it could be reached.
    pub(crate) is_silent: bool,
    /// What the worker's link has seen since the last round.
    pub(crate) seen: Seen,
}

/// Probes all servers of a worker's ring at once and sends the findings.
pub(crate) async fn run(backend: Backend, tell: oneshot::Sender<Findings>) {
    let findings = match &backend {
        Backend::Local(_) => Findings { ring: None, servers: Vec::new() },
        Backend::Cluster(cluster) => {
            let view = cluster.view();
            let ring = Some(Arc::clone(view.state()));
            let asked = view.probes().map(|(link, slot)| async move { ask(&link, &slot).await });
            Findings { ring, servers: join_all(asked).await }
        }
    };
    let _ = tell.send(findings);
}

async fn ask(link: &Link, unanswered: &ProbeSlot) -> Finding {
    let answers = link.answers();
    let issued = unanswered.take();
    let mut issued = issued.unwrap_or_else(|| link.probe());
    let (why, is_silent) = match tokio::time::timeout(ANSWER_LIMIT, &mut issued).await {
        Ok(Ok(_)) => (None, false),
        Ok(Err(error)) => (Some(why(&error.fault)), false),
        Err(_) => {
            unanswered.replace(Some(issued));
            // A server that answers other requests works, even if this probe is still queued.
            let is_silent = link.answers() == answers;
            let why = format!("no answer within {} ms", ANSWER_LIMIT.as_millis());
            (is_silent.then_some(why), is_silent)
        }
    };
    Finding { why, is_silent, seen: link.take_seen() }
}

fn why(fault: &LinkFault) -> String {
    match fault {
        LinkFault::Down(why) => format!("down: {why}"),
        LinkFault::Lost(why) => format!("went away: {why}"),
        LinkFault::TimedOut(limit) => format!("no answer within {} ms", limit.as_millis()),
        LinkFault::Malformed(what) => format!("answered nonsense: {what}"),
        LinkFault::Refused(why) => format!("refused: {why}"),
        LinkFault::TooManyClients => "it has too many clients".to_owned(),
        LinkFault::Out => "it is out of the ring".to_owned(),
    }
}

/// The timeout of a probe. It is short enough that a silent server is out of the ring within 2 s.
const ANSWER_LIMIT: Duration = Duration::from_millis(800);
