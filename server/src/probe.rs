//! Finds out which servers of its ring answer a worker. It uses the worker's links, with the connections, the health
//! and the timeouts of clients' requests. [`crate::readiness`] decides whether that makes the process ready.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::oneshot;

use crate::backend::Backend;
use crate::upstream::{Issued, Link, LinkFault};

/// For each server of the ring, the reason why it does not answer, if it does not. It is empty with the embedded store.
pub(crate) type Findings = Vec<Option<String>>;

/// The probes of one worker to its servers.
pub(crate) struct Prober {
    links: Vec<Asked>,
}

struct Asked {
    link: Link,
    /// The probe that was not answered in time. Another probe would only wait in the same queue.
    unanswered: RefCell<Option<Issued>>,
}

impl Prober {
    pub(crate) fn new(backend: &Backend) -> Rc<Self> {
        let links = match backend {
            Backend::Local(_) => &[],
            Backend::Cluster(cluster) => cluster.links(),
        };
        let asked = |link: &Link| Asked { link: link.clone(), unanswered: RefCell::default() };
        Rc::new(Self { links: links.iter().map(asked).collect() })
    }

    /// Probes all servers at once and sends the findings.
    pub(crate) async fn run(self: Rc<Self>, tell: oneshot::Sender<Findings>) {
        let _ = tell.send(join_all(self.links.iter().map(Asked::ask)).await);
    }
}

impl Asked {
    async fn ask(&self) -> Option<String> {
        let answers = self.link.answers();
        let issued = self.unanswered.take();
        let mut issued = issued.unwrap_or_else(|| self.link.probe());
        match tokio::time::timeout(ANSWER_LIMIT, &mut issued).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(why(&error.fault)),
            Err(_) => {
                self.unanswered.replace(Some(issued));
                // A server that answers other requests is there, however many requests wait before this probe.
                let is_silent = self.link.answers() == answers;
                is_silent.then(|| format!("no answer within {} ms", ANSWER_LIMIT.as_millis()))
            }
        }
    }
}

fn why(fault: &LinkFault) -> String {
    match fault {
        LinkFault::Down(why) => format!("down: {why}"),
        LinkFault::Lost(why) => format!("went away: {why}"),
        LinkFault::TimedOut(limit) => format!("no answer within {} ms", limit.as_millis()),
        LinkFault::Malformed(what) => format!("answered nonsense: {what}"),
        LinkFault::Refused(why) => format!("refused: {why}"),
        LinkFault::TooManyClients => "it has too many clients".to_owned(),
    }
}

/// The time that a server has to answer a probe. With the pause between two probes it is less than the time within
/// which a change must show.
const ANSWER_LIMIT: Duration = Duration::from_millis(800);
