//! Reads of commands that do not take the right to refill a stale item. A memcached server gives this right to the
//! first reader all the same. It is given back as soon as the server has answered, whether or not the caller still
//! waits: while somebody has the right, no client is told to refill the item.

use protocol::MetaKey;
use protocol::meta::Meta;
use tokio::task::{JoinHandle, spawn_local};

use super::{Cluster, Failure, Issue, MetaItem, Outcome};
use crate::budget::Permit;
use crate::upstream::{AnswerStage, Issued, Traffic};

/// A read of an item with its metadata, in flight. Dropping it discards the item.
pub(crate) enum PlainGet {
    Ready(Option<MetaItem>),
    /// The task goes on if nobody waits for it. The stage is that of the client's request.
    Sent(JoinHandle<Outcome<Option<MetaItem>>>, Option<Box<AnswerStage>>),
}

impl PlainGet {
    /// Sends the request, and leaves the rest to a task.
    pub(super) fn send(
        cluster: &Cluster,
        meta: &Meta<'_>,
        with_value: bool,
        traffic: Traffic,
        granted: Option<Permit>,
    ) -> Self {
        let issued = cluster.meta_get(meta, with_value, traffic, granted);
        let stage = issued.take_stage();
        let (cluster, key) = (cluster.clone(), meta.key.bytes().to_vec());
        PlainGet::Sent(spawn_local(async move { read(&cluster, &key, issued).await }), stage)
    }

    /// Waits for the item. The right to refill it was then given back.
    pub(crate) async fn item(self) -> Outcome<Option<MetaItem>> {
        match self {
            PlainGet::Ready(item) => Ok(item),
            PlainGet::Sent(task, stage) => {
                let item = task.await;
                if let Some(stage) = stage {
                    stage.close();
                }
                item.unwrap_or_else(|_| Err(Failure::line(DEFECT)))
            }
        }
    }
}

async fn read(cluster: &Cluster, key: &[u8], issued: Issued) -> Outcome<Option<MetaItem>> {
    let read = Issue::<Option<MetaItem>>::Sent(issued).meta_item().await;
    let right = match &read {
        Ok(Some(MetaItem { facts, .. })) => facts.won.then_some(facts.cas),
        // The server has given the right with the value for which there was no memory.
        Err(Failure::OverBudget(over_budget)) => over_budget.right(),
        _ => None,
    };
    if let Some(cas) = right {
        let _ = cluster.mark_stale(&MetaKey::from_packet(key), cas).await;
    }
    read
}

const DEFECT: &[u8] = b"SERVER_ERROR a defect ended the request";
