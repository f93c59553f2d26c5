//! Tests that a tenant's job sees no bytes of another tenant, even on a device that states more bytes than it wrote.

use std::sync::Arc;
use std::task::Waker;

use crate::common::*;
use device::{
    Capabilities, Completion, Device, DeviceError, Job, Outcome, Queue, Refused, TenantId,
};
use units::{ByteCount, Nanos};

/// A device that writes nothing, and claims that it filled the whole output buffer.
struct OverreportingDevice(Capabilities);

impl Device for OverreportingDevice {
    fn name(&self) -> &str {
        "boaster"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.0
    }

    fn open_queue(&self, _waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(OverreportingQueue(Vec::new())))
    }
}

#[expect(clippy::vec_box, reason = "jobs come and go in their boxes")]
struct OverreportingQueue(Vec<Box<Job>>);

impl Queue for OverreportingQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        self.0.push(job);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        done.extend(self.0.drain(..).map(|mut job| {
            let bytes = job.output.capacity();
            job.output.set_len(bytes);
            let outcome = Outcome::Done { output_bytes: bytes - job.output_offset };
            Completion { job, outcome, service: Nanos(0) }
        }));
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.0.len()
    }
}

/// Returns the result of a job of `tenant` whose output buffer contained the `secret` of `other` before.
fn given(secret: &[u8], other: u16, tenant: u16) -> Vec<u8> {
    let mut rig = Rig::new(Arc::new(OverreportingDevice(Script::polled().capabilities().clone())));
    rig.pool = device::Pool::heap(ByteCount::mib(1));
    let mut result = Vec::new();
    for (tenant, leaves) in [(other, Some(secret)), (tenant, None)] {
        let mut job = compress(&rig.pool, 1);
        job.tenant = TenantId(tenant);
        let ticket = rig.core.submit(job);
        rig.core.turn();
        let mut finished = rig.finished(ticket);
        assert_eq!(finished.path, on_device());
        assert_eq!(finished.job.output[..HEADER.len()], HEADER, "a header is its caller's");
        if let Some(secret) = leaves {
            finished.job.output.space()[100..100 + secret.len()].copy_from_slice(secret);
        }
        result = finished.job.output[HEADER.len()..].to_vec();
        // Input and output come from one pool, and the next job must get this output as its output.
        let Job { input, output, .. } = *finished.job;
        drop(input);
        drop(output);
    }
    result
}

#[test]
fn an_overlong_result_shows_nothing_of_another_tenant() {
    let secret = b"a secret of the first tenant's";
    let shows = |other, tenant| {
        given(secret, other, tenant).windows(secret.len()).any(|part| part == secret)
    };
    assert!(shows(1, 1), "of its own it may: nothing is wiped without need");
    assert!(shows(0, 0), "and where there are no tenants");
    for (other, tenant) in [(1, 2), (2, 1), (0, 1)] {
        assert!(!shows(other, tenant), "{other} to {tenant}");
    }
}
