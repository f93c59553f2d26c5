//! gRPC health and reflection, shared by all connections of the process.

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

/// Reports the health status of each service.
#[derive(Clone)]
pub(crate) struct Health {
    reporter: HealthReporter,
    offered: Vec<Offered>,
    /// The last reported status of each offered service, because watchers are notified only of changes.
    reported: Arc<Mutex<Vec<Option<ServingStatus>>>>,
}

#[derive(Clone, Copy)]
struct Offered {
    name: &'static str,
    /// True if the service needs the store.
    needs_store: bool,
}

impl Health {
    /// Creates the health state of a process with these services, and the routes for health and reflection.
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
            // The empty name is the process as a whole.
            (true, "", true),
        ];
        let offered = offered.into_iter().filter(|(offered, ..)| *offered);
        let offered: Vec<_> =
            offered.map(|(_, name, needs_store)| Offered { name, needs_store }).collect();
        let reported = Arc::new(Mutex::new(vec![None; offered.len()]));
        (Self { reporter, offered, reported }, Routes::new(health).add_service(reflection))
    }

    /// Sets the status of each service. Services that need the store, and the process as a whole (the empty
    /// name), serve if the process is `ready`. Other services serve if it is `working`.
    pub(crate) async fn set(&self, ready: bool, working: bool) {
        for (index, offered) in self.offered.iter().enumerate() {
            let serves = if offered.needs_store { ready } else { working };
            let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
            let last = self.reported.lock()[index].replace(status);
            if last != Some(status) {
                self.reporter.set_service_status(offered.name, status).await;
            }
        }
    }
}
