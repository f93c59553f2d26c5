//! The counts of a run, and the facts computed from them. Times are sums over all requests, including those of the
//! warm-up.

use crate::Picos;

/// A part of the time that a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The network core receives and sends packets.
    Net,
    /// The command interface handles words and completions.
    Command,
    /// Rx reads the header and the lines of its packet.
    RxHeader,
    /// Rx dispatches and deserializes.
    RxDeserialize,
    /// Rx waits for cache misses and page walks.
    RxMemory,
    RxFinish,
    /// Tx writes the header and serializes.
    TxSerialize,
    TxMemory,
    TxFinish,
    AppHandler,
    AppBytes,
    /// Words leave the application core.
    AppIssue,
    /// The application core waits for its read.
    AppWait,
    /// Cores touch pages after a fault.
    Fault,
    /// A core without an engine runs the network and RPC layer.
    Software,
}

const STAGES: [(Stage, &str); 15] = [
    (Stage::Net, "net_ns"),
    (Stage::Command, "command_ns"),
    (Stage::RxHeader, "rx_header_ns"),
    (Stage::RxDeserialize, "rx_deserialize_ns"),
    (Stage::RxMemory, "rx_memory_ns"),
    (Stage::RxFinish, "rx_finish_ns"),
    (Stage::TxSerialize, "tx_serialize_ns"),
    (Stage::TxMemory, "tx_memory_ns"),
    (Stage::TxFinish, "tx_finish_ns"),
    (Stage::AppHandler, "app_handler_ns"),
    (Stage::AppBytes, "app_bytes_ns"),
    (Stage::AppIssue, "app_issue_ns"),
    (Stage::AppWait, "app_wait_ns"),
    (Stage::Fault, "fault_ns"),
    (Stage::Software, "software_ns"),
];

const OTHERS: [&str; 11] = [
    "throughput_per_s",
    "net.utilisation",
    "command.utilisation",
    "rx.utilisation",
    "tx.utilisation",
    "app.utilisation",
    "rx.share",
    "deserialize.share",
    "walks_per_request",
    "faults_per_request",
    "working_set_kib",
];

#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// The number of requests done.
    pub(super) done: u64,
    pub(super) walks: u64,
    pub(super) faults: u64,
    times_ps: [u128; STAGES.len()],
}

/// Returns the names of the facts. The times per request come first.
pub(super) fn names() -> Vec<String> {
    STAGES.iter().map(|(_, name)| *name).chain(OTHERS).map(str::to_owned).collect()
}

impl Counts {
    pub(super) fn add(&mut self, stage: Stage, time: Picos) {
        self.times_ps[stage as usize] += u128::from(time.0);
    }

    /// Returns the facts in the order of [`names`].
    pub(super) fn facts(&self, duration: Picos, working_set_bytes: f64) -> Vec<f64> {
        let sum = |stages: &[Stage]| {
            stages.iter().map(|stage| self.times_ps[*stage as usize]).sum::<u128>() as f64
        };
        let done = self.done.max(1) as f64;
        let over = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let busy = |stages: &[Stage]| over(sum(stages), duration.0 as f64);
        let payload_stages = &[Stage::RxDeserialize, Stage::RxMemory];
        let rx = &[Stage::RxHeader, Stage::RxDeserialize, Stage::RxMemory, Stage::RxFinish];
        let tx = &[Stage::TxSerialize, Stage::TxMemory, Stage::TxFinish];
        let app = &[Stage::AppHandler, Stage::AppBytes, Stage::AppIssue, Stage::Software];
        let engine = sum(rx) + sum(tx);
        let others = [
            over(self.done as f64, duration.0 as f64 * 1e-12),
            busy(&[Stage::Net]),
            busy(&[Stage::Command]),
            busy(rx),
            busy(tx),
            busy(app),
            over(sum(rx), engine),
            over(sum(payload_stages), engine),
            self.walks as f64 / done,
            self.faults as f64 / done,
            working_set_bytes / 1_024.0,
        ];
        let times = STAGES.iter().map(|(stage, _)| sum(&[*stage]) * 1e-3 / done);
        times.chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_and_every_fact_has_a_place() {
        for (place, (stage, _)) in STAGES.iter().enumerate() {
            assert_eq!(*stage as usize, place, "{stage:?}");
        }
        let mut counts = Counts { done: 2, ..Counts::default() };
        counts.add(Stage::RxHeader, Picos::nanos(30));
        counts.add(Stage::TxSerialize, Picos::nanos(10));
        let facts = counts.facts(Picos::nanos(100), 2_048.0);
        assert_eq!(facts.len(), names().len());
        let fact = |name: &str| facts[names().iter().position(|known| known == name).expect(name)];
        assert_eq!((fact("rx_header_ns"), fact("rx.share")), (15.0, 0.75));
        assert_eq!((fact("throughput_per_s"), fact("rx.utilisation")), (2e7, 0.3));
        assert!(Counts::default().facts(Picos(0), 0.0).iter().all(|fact| *fact == 0.0));
    }
}
