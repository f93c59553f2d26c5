//! gRPC health and reflection, the same for every connection of the process: whether each service of this process
//! serves, and what the services are.

use std::sync::Arc;

use api::v1::cache_server::CacheServer;
use api::v1::compression_server::CompressionServer;
use api::v1::scheduler_server::SchedulerServer;
use api::v1::store_server::StoreServer;
use parking_lot::Mutex;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::cache::CacheService;
use super::compression::CompressionService;
use super::scheduler::SchedulerService;
use super::store::StoreService;
use crate::config::Services;

/// Reports which services serve.
#[derive(Clone)]
pub(crate) struct Health {
    reporter: HealthReporter,
    offered: Vec<Offered>,
    /// The last status that each offered service reported. Clients that watch a service are told of changes only.
    told: Arc<Mutex<Vec<Option<ServingStatus>>>>,
}

#[derive(Clone, Copy)]
struct Offered {
    name: &'static str,
    /// Whether the service answers from the store.
    needs_store: bool,
}

impl Health {
    /// Creates the health state of a process with these services, and the routes that answer its clients.
    pub(crate) fn new(services: Services) -> (Self, Routes) {
        let (reporter, health) = tonic_health::server::health_reporter();
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(api::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .expect("the descriptors were compiled with this binary");
        let offered = [
            (services.frontend, CacheServer::<CacheService>::NAME, true),
            (services.compression, CompressionServer::<CompressionService>::NAME, false),
            (services.store, StoreServer::<StoreService>::NAME, true),
            (services.scheduler, SchedulerServer::<SchedulerService>::NAME, false),
            // The process as a whole.
            (true, "", true),
        ];
        let offered = offered.into_iter().filter(|(offered, ..)| *offered);
        let offered: Vec<_> =
            offered.map(|(_, name, needs_store)| Offered { name, needs_store }).collect();
        let told = Arc::new(Mutex::new(vec![None; offered.len()]));
        (Self { reporter, offered, told }, Routes::new(health).add_service(reflection))
    }

    /// Sets the status that clients see. A service that needs the store serves if the process is `ready`. Any other
    /// service serves if the process is `working` at all. The process as a whole has the empty name.
    pub(crate) async fn set(&self, ready: bool, working: bool) {
        for (index, offered) in self.offered.iter().enumerate() {
            let serves = if offered.needs_store { ready } else { working };
            let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
            let last = self.told.lock()[index].replace(status);
            if last != Some(status) {
                self.reporter.set_service_status(offered.name, status).await;
            }
        }
    }
}
