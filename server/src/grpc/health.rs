//! gRPC health and reflection, the same for every connection of the process: whether each service of this process
//! serves, and what the services are.

use api::v1::cache_server::CacheServer;
use api::v1::compression_server::CompressionServer;
use api::v1::scheduler_server::SchedulerServer;
use api::v1::store_server::StoreServer;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::cache::CacheService;
use super::compression::CompressionService;
use super::scheduler::SchedulerService;
use super::store::StoreService;
use crate::config::Services;

/// Says which services serve.
#[derive(Clone)]
pub(crate) struct Health {
    reporter: HealthReporter,
    offered: Vec<&'static str>,
}

impl Health {
    /// For a process with these services, and the calls that answer clients of it.
    pub(crate) fn new(services: Services) -> (Self, Routes) {
        let (reporter, health) = tonic_health::server::health_reporter();
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(api::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .expect("the descriptors were compiled with this binary");
        let offered = [
            (services.frontend, CacheServer::<CacheService>::NAME),
            (services.compression, CompressionServer::<CompressionService>::NAME),
            (services.store, StoreServer::<StoreService>::NAME),
            (services.scheduler, SchedulerServer::<SchedulerService>::NAME),
        ];
        let offered = offered.into_iter().filter(|(offered, _)| *offered);
        let offered = offered.map(|(_, name)| name).collect();
        (Self { reporter, offered }, Routes::new(health).add_service(reflection))
    }

    /// Tells whoever asks or watches. The process as a whole goes by the empty name.
    pub(crate) async fn set_serving(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in self.offered.iter().copied().chain([""]) {
            self.reporter.set_service_status(name, status).await;
        }
    }
}
