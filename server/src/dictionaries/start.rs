//! Starts the trainer of a server: its store of dictionaries is the one that the first worker can reach.

use std::sync::Arc;

use device::{Dictionary, TenantId};
use tokio::sync::oneshot;

use super::{
    Choice, Class, Dictionaries, ExchangeRequest, Publisher, Trainer, TrainerOptions, TrainerThread,
};
use crate::StartError;
use crate::config::convert;
use crate::worker::{Plan, Worker, WorkerMessage};

/// Starts the thread that trains dictionaries.
pub(crate) fn start_trainer(
    plan: &Arc<Plan>,
    workers: Arc<[Worker]>,
) -> Result<TrainerThread, StartError> {
    let options = TrainerOptions {
        form: convert::value_form(&plan.config),
        publisher: Box::new(StorePublisher(workers)),
        counters: Arc::clone(&plan.training),
        train: plan.platform.train_dictionary,
    };
    let trainer = Trainer::new(Arc::clone(&plan.dictionaries), options);
    // Not the whole plan: a training that outlasts the server must not hold its devices.
    let (embedded, dictionaries) = (plan.embedded.clone(), Arc::clone(&plan.dictionaries));
    let platform = plan.platform;
    let after_turn = move |has_tried| {
        if let Some(embedded) = &embedded {
            embedded.reserve(dictionaries.reserved_bytes());
        }
        if has_tried {
            // The samples, the codecs and the trainer's tables were a few MiB, between dictionaries that stay.
            (platform.trim_heap)();
        }
    };
    TrainerThread::start(trainer, Arc::clone(&plan.clock), after_turn).map_err(StartError::Thread)
}

/// Makes the class of a key use a dictionary that was trained elsewhere, in the same steps as the trainer: the store
/// has it before any value needs it. Returns false if there is no memory for it, or the store does not take it.
pub(crate) async fn adopt(
    dictionaries: Arc<Dictionaries>,
    workers: Arc<[Worker]>,
    key: Vec<u8>,
    dictionary: Arc<Dictionary>,
) -> bool {
    let Some(class) = dictionaries.class(TenantId::default(), &key, &[]) else { return false };
    let (answer, answered) = oneshot::channel();
    let request = ExchangeRequest::Publish(Arc::clone(&class), Arc::clone(&dictionary), answer);
    let is_sent = workers.first().is_some_and(|worker| {
        dictionaries.add(&dictionary) && worker.send(WorkerMessage::Dictionary(request))
    });
    let is_published = is_sent && answered.await.unwrap_or(false);
    if is_published {
        class.choose(Choice::Dictionary(dictionary));
    }
    is_published
}

/// Publishes dictionaries in the store, which the first worker can reach.
struct StorePublisher(Arc<[Worker]>);

impl StorePublisher {
    /// Returns the worker's answer, or the default if the worker has ended.
    fn ask<T: Default>(&self, request: impl FnOnce(oneshot::Sender<T>) -> ExchangeRequest) -> T {
        let (answer, answered) = oneshot::channel();
        match self.0.first() {
            Some(worker) if worker.send(WorkerMessage::Dictionary(request(answer))) => {
                answered.blocking_recv().unwrap_or_default()
            }
            _ => T::default(),
        }
    }
}

impl Publisher for StorePublisher {
    fn publish(&mut self, class: &Arc<Class>, dictionary: &Arc<Dictionary>) -> bool {
        let (class, dictionary) = (Arc::clone(class), Arc::clone(dictionary));
        self.ask(|answer| ExchangeRequest::Publish(class, dictionary, answer))
    }

    fn published(&mut self, class: &Arc<Class>) -> Option<Arc<Dictionary>> {
        self.ask(|answer| ExchangeRequest::Published(Arc::clone(class), answer))
    }
}
