//! The metrics page: every counter of the server, summed over its workers, and the families that dashboards
//! for memcached's exporter use. Names have one prefix and base units. No label has values from clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Device;
use policy::RawReason;
use store::embedded;
use store::embedded::snapshot::RestoredItems;
use units::Nanos;

use super::exposition::{Exposition, Sums, seconds};
use super::{Admin, Reloads, process, programs, requests, ring, sealing, snapshot};
use crate::budget::Budget;
use crate::context::Connections;
use crate::counters::{
    CommandKind, Control, Counter, Counters, Histogram, LOG_LOSSES, LogLosses, Stage,
};
use crate::hot_values::HotStats;
use crate::otlp::Export;
use crate::readiness::Readiness;
use crate::restart::{Outcome, Restart};
use crate::tls::Tls;

/// Returns the page with the current numbers.
pub(super) fn render(admin: &Admin) -> String {
    let plan = &admin.plan;
    let workers = Workers(&plan.counters);
    let store = plan.embedded.as_ref().map(|store| store.stats());
    let mut page = Exposition::default();
    page.gauge("rebate_build_info", "Always 1; the labels say what was built.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    configuration(&mut page, &admin.reloads);
    page.gauge("rebate_connections_max", "Client connections at most.")
        .sample(&[], plan.connections.max());
    memory(&mut page, admin);
    listeners(&mut page, &plan.connections);
    if plan.tls.is_used() {
        tls(&mut page, &plan.tls);
    }
    clients(&mut page, &workers);
    commands(&mut page, &workers);
    values(&mut page, &workers);
    sealing::values(&mut page, &workers);
    if let Some(keys) = &plan.value_keys {
        sealing::keys(&mut page, keys, &plan.control);
    }
    dictionaries(&mut page, admin);
    upstream(&mut page, &workers);
    ring::errors(&mut page, &workers, &plan.members);
    readiness(&mut page, admin.readiness());
    ring::servers(&mut page, &plan.members);
    tasks(&mut page, &workers, &plan.control, &plan.runtimes.read());
    requests::metrics(&mut page, &plan.requests, &plan.slow_log);
    if !plan.config.otlp.address.is_empty() {
        otlp(&mut page, &plan.export);
    }
    log(&mut page, &LOG_LOSSES);
    grpc(&mut page, &workers);
    access(&mut page, &workers, &plan.control);
    lanes(&mut page, &workers);
    near(&mut page, &workers);
    let executors = plan.program_metrics.read();
    if !executors.is_empty() {
        let begin = page.len();
        programs::connections(&mut page, &workers);
        programs::executors(&mut page, &executors);
        page.repeat_as(begin, "rebate_program", "rebate_trace");
    }
    drop(executors);
    jobs(&mut page, &plan.runtimes.read());
    devices(&mut page, &plan.devices);
    memcached(&mut page, &workers, plan.clock.now(), plan.connections.max());
    if let Some(stats) = &store {
        items(&mut page, stats);
    }
    if let Some(restart) = &plan.restart {
        restarted(&mut page, restart);
    }
    if let Some(hot_values) = &plan.hot_values {
        hot(&mut page, &hot_values.stats());
    }
    if !plan.config.scheduler.address.is_empty() {
        snapshot::reporting(&mut page, &plan.reporting);
    }
    if let Some(scheduler) = &plan.scheduler {
        snapshot::history(&mut page, scheduler, plan.clock.now());
        snapshot::fitted(&mut page, scheduler, plan.clock.now());
    }
    process::write(&mut page, admin.process_started_unix_s);
    page.finish()
}

/// The counters of all workers, to be summed.
pub(super) struct Workers<'p>(pub(super) &'p [Arc<Counters>]);

impl Workers<'_> {
    pub(super) fn sum(&self, counter: impl for<'c> Fn(&'c Counters) -> &'c Counter) -> u64 {
        self.0.iter().map(|worker| counter(worker).read()).sum()
    }

    /// Returns the number of sets without cas commands, which memcached includes but its exporter does not.
    fn sets(&self) -> u64 {
        let cas = self.sum(|c| &c.commands.cas_hits)
            + self.sum(|c| &c.commands.cas_misses)
            + self.sum(|c| &c.commands.cas_badval);
        self.sum(|c| &c.commands.cmd_set).saturating_sub(cas)
    }

    /// Returns the numbers of commands by result, under the exporter's names.
    fn results(&self) -> [(&'static str, &'static str, u64); 14] {
        [
            ("get", "hit", self.sum(|c| &c.commands.get_hits)),
            ("get", "miss", self.sum(|c| &c.commands.get_misses)),
            ("delete", "hit", self.sum(|c| &c.commands.delete_hits)),
            ("delete", "miss", self.sum(|c| &c.commands.delete_misses)),
            ("incr", "hit", self.sum(|c| &c.commands.incr_hits)),
            ("incr", "miss", self.sum(|c| &c.commands.incr_misses)),
            ("decr", "hit", self.sum(|c| &c.commands.decr_hits)),
            ("decr", "miss", self.sum(|c| &c.commands.decr_misses)),
            ("cas", "hit", self.sum(|c| &c.commands.cas_hits)),
            ("cas", "miss", self.sum(|c| &c.commands.cas_misses)),
            ("cas", "badval", self.sum(|c| &c.commands.cas_badval)),
            ("touch", "hit", self.sum(|c| &c.commands.touch_hits)),
            ("touch", "miss", self.sum(|c| &c.commands.touch_misses)),
            ("flush", "hit", self.sum(|c| &c.commands.cmd_flush)),
        ]
    }
}

fn configuration(page: &mut Exposition, reloads: &Reloads) {
    page.counter("rebate_config_reloads_total", "Reloads of the configuration, by result.")
        .sample(&[("result", "success")], reloads.succeeded.read())
        .sample(&[("result", "failure")], reloads.failed.read());
    page.gauge(
        "rebate_config_last_reload_success_timestamp_seconds",
        "When the configuration in effect was taken over, since the Unix epoch.",
    )
    .sample(&[], reloads.last_success_unix_s.read());
}

fn memory(page: &mut Exposition, admin: &Admin) {
    let (parts, budgets) = (&admin.plan.memory, admin.plan.budgets.read());
    let mut most =
        page.gauge("rebate_memory_max_bytes", "The most that a part of the process holds.");
    for (part, bytes) in parts.named() {
        most.sample(&[("part", part)], bytes.0);
    }
    page.gauge("rebate_memory_held_bytes", "What values in flight, and bytes of TLS, hold now.")
        .sample(&[("part", "values")], budgets.iter().map(Budget::held).sum::<u64>())
        .sample(&[("part", "tls")], tls::held_bytes());
}

/// Writes the counts of dictionaries and their training. Classes have no metrics, because their names come from
/// clients.
fn dictionaries(page: &mut Exposition, admin: &Admin) {
    let (dictionaries, training) = (&admin.plan.dictionaries, &admin.plan.training);
    page.gauge("rebate_dictionaries", "Dictionaries that stored values may need.")
        .sample(&[], dictionaries.all().len() as u64);
    page.gauge("rebate_dictionary_classes", "Classes of keys.")
        .sample(&[], dictionaries.classes().len() as u64);
    page.gauge("rebate_dictionary_memory_bytes", "Memory of dictionaries and samples.")
        .sample(&[], dictionaries.memory_bytes());
    page.counter("rebate_dictionary_trials_total", "Trials of forms on samples of a class.")
        .sample(&[], training.trials.read());
    page.counter("rebate_dictionaries_trained_total", "Dictionaries trained, used or not.")
        .sample(&[], training.trained.read());
    page.counter("rebate_dictionaries_adopted_total", "Dictionaries that a class began to use.")
        .sample(&[("result", "adopted")], training.adopted.read())
        .sample(&[("result", "refused")], training.refused.read());
}

pub(super) fn clients(page: &mut Exposition, workers: &Workers<'_>) {
    page.gauge("rebate_connections", "Client connections, by state.")
        .sample(&[("state", "open")], workers.sum(|c| &c.commands.curr_connections));
    page.counter("rebate_connections_total", "Client connections served.")
        .sample(&[], workers.sum(|c| &c.commands.total_connections));
    page.counter("rebate_connections_rejected_total", "Client connections over the limit.")
        .sample(&[], workers.sum(|c| &c.commands.rejected_connections));
    page.counter("rebate_connections_idle_total", "Client connections closed for their silence.")
        .sample(&[], workers.sum(|c| &c.commands.idle_kicks));
    page.counter(
        "rebate_connections_slow_total",
        "Client connections closed because they sent or took a value too slowly.",
    )
    .sample(&[], workers.sum(|c| &c.commands.slow_kicks));
    page.counter("rebate_connection_yields_total", "Connections that gave way amid commands.")
        .sample(&[], workers.sum(|c| &c.commands.conn_yields));
    page.counter("rebate_client_bytes_total", "Bytes from and to clients.")
        .sample(&[("direction", "read")], workers.sum(|c| &c.commands.bytes_read))
        .sample(&[("direction", "written")], workers.sum(|c| &c.commands.bytes_written));
    page.counter("rebate_bad_commands_total", "Lines and packets that were no command.")
        .sample(&[], workers.sum(|c| &c.commands.bad_lines));
    page.counter("rebate_packets_total", "Commands in the binary protocol.")
        .sample(&[], workers.sum(|c| &c.commands.cmd_binary));
    page.counter("rebate_thrift_calls_total", "Calls of the Thrift service.")
        .sample(&[], workers.sum(|c| &c.commands.cmd_thrift));
    page.counter(
        "rebate_wrong_protocol_total",
        "Client connections closed because of their protocol, by what they sent.",
    )
    .sample(&[("sent", "binary")], workers.sum(|c| &c.commands.refused_binary))
    .sample(&[("sent", "ascii")], workers.sum(|c| &c.commands.refused_ascii))
    .sample(&[("sent", "garbage")], workers.sum(|c| &c.commands.bad_magic));
    page.counter(
        "rebate_backpressure_waits_total",
        "Waits of connections because too many bytes of values were in flight.",
    )
    .sample(&[], workers.sum(|c| &c.commands.backpressure_waits));
    page.gauge("rebate_watchers", "Clients that watch events.")
        .sample(&[], workers.sum(|c| &c.commands.log_watchers));
    page.counter("rebate_watcher_lines_total", "Lines about events for watchers, by result.")
        .sample(&[("result", "sent")], workers.sum(|c| &c.commands.log_watcher_sent))
        .sample(&[("result", "skipped")], workers.sum(|c| &c.commands.log_watcher_skipped));
}

pub(super) fn commands(page: &mut Exposition, workers: &Workers<'_>) {
    let mut family = page.counter(
        "rebate_commands_total",
        "Commands by result; of sets and flushes that results do not tell apart, any.",
    );
    for (command, result, count) in workers.results() {
        let result = if command == "flush" { "any" } else { result };
        family.sample(&[("command", command), ("result", result)], count);
    }
    family.sample(&[("command", "set"), ("result", "any")], workers.sets());
    page.counter("rebate_get_keys_total", "Keys asked for by retrieval commands.")
        .sample(&[], workers.sum(|c| &c.commands.cmd_get));
    page.counter("rebate_set_commands_total", "Storage commands, cas included.")
        .sample(&[], workers.sum(|c| &c.commands.cmd_set));
    page.counter("rebate_touch_keys_total", "Keys touched, by touch, gat and gats.")
        .sample(&[], workers.sum(|c| &c.commands.cmd_touch));
    page.counter("rebate_meta_commands_total", "Meta commands, which count by result as well.")
        .sample(&[], workers.sum(|c| &c.commands.cmd_meta));
    page.counter("rebate_store_failures_total", "Values that were not stored, by reason.")
        .sample(&[("reason", "too_large")], workers.sum(|c| &c.commands.store_too_large))
        .sample(&[("reason", "no_memory")], workers.sum(|c| &c.commands.store_no_memory));
    let mut family = page.histogram(
        "rebate_request_duration_seconds",
        "Time from a command's parse to its reply's composition.",
    );
    for kind in CommandKind::ALL {
        let parts: Vec<&Histogram> =
            workers.0.iter().map(|worker| &worker.durations[kind as usize]).collect();
        family.durations(&[("command", kind.name())], &parts);
    }
    let help =
        "Time of what requests wait for beside jobs: a store elsewhere, the client's socket.";
    let mut family = page.histogram("rebate_request_stage_seconds", help);
    for stage in Stage::ALL {
        let parts: Vec<&Histogram> =
            workers.0.iter().map(|worker| &worker.stages[stage as usize]).collect();
        family.durations(&[("stage", stage.name())], &parts);
    }
}

pub(super) fn values(page: &mut Exposition, workers: &Workers<'_>) {
    let mut family = page.counter(
        "rebate_values_written_total",
        "Values written, by stored form; raw ones by why they were stored as they came.",
    );
    family
        .sample(&[("form", "compressed")], workers.sum(|c| &c.values.written_compressed))
        .sample(&[("form", "same_filled")], workers.sum(|c| &c.values.written_same_filled))
        .sample(&[("form", "wrapped")], workers.sum(|c| &c.values.written_wrapped));
    for reason in RawReason::ALL {
        let count = workers.sum(|c| &c.raw[reason as usize]);
        family.sample(&[("form", "raw"), ("reason", reason.name())], count);
    }
    page.counter("rebate_values_read_total", "Values read, by stored form.")
        .sample(&[("form", "compressed")], workers.sum(|c| &c.values.read_compressed))
        .sample(&[("form", "framed")], workers.sum(|c| &c.values.read_framed))
        .sample(&[("form", "foreign")], workers.sum(|c| &c.values.read_foreign))
        .sample(&[("form", "hot")], workers.sum(|c| &c.values.read_hot))
        .sample(&[("form", "as_frame")], workers.sum(|c| &c.values.read_as_frame));
    let logical = |direction| [("direction", direction), ("stage", "logical")];
    let stored = |direction| [("direction", direction), ("stage", "stored")];
    page.counter("rebate_value_bytes_total", "Bytes of values, as clients see them and as stored.")
        .sample(&logical("written"), workers.sum(|c| &c.values.logical_bytes_written))
        .sample(&stored("written"), workers.sum(|c| &c.values.stored_bytes_written))
        .sample(&logical("read"), workers.sum(|c| &c.values.logical_bytes_read))
        .sample(&stored("read"), workers.sum(|c| &c.values.stored_bytes_read));
    page.counter(
        "rebate_frame_errors_total",
        "Values not served as stored; all but device_corrupt, which is redone, are misses.",
    )
    .sample(&[("kind", "invalid")], workers.sum(|c| &c.values.frame_invalid))
    .sample(&[("kind", "corrupt")], workers.sum(|c| &c.values.frame_corrupt))
    .sample(&[("kind", "dictionary_missing")], workers.sum(|c| &c.values.dictionary_missing))
    .sample(&[("kind", "device_corrupt")], workers.sum(|c| &c.values.device_corrupt))
    .sample(&[("kind", "no_device")], workers.sum(|c| &c.values.no_device))
    .sample(&[("kind", "foreign_refused")], workers.sum(|c| &c.values.foreign_refused))
    .sample(&[("kind", "unsealed_refused")], workers.sum(|c| &c.values.unsealed_refused))
    .sample(&[("kind", "seal_invalid")], workers.sum(|c| &c.values.seal_invalid))
    .sample(&[("kind", "seal_wrong")], workers.sum(|c| &c.values.seal_wrong))
    .sample(&[("kind", "seal_key_unknown")], workers.sum(|c| &c.values.seal_key_unknown));
    page.counter(
        "rebate_unreadable_deleted_total",
        "Items deleted under their CAS because their frame is damaged.",
    )
    .sample(&[], workers.sum(|c| &c.values.unreadable_deleted));
    let (client, store) = ([("from", "client")], [("from", "store")]);
    page.counter("rebate_value_copies_total", "Values copied in part or whole from a read buffer.")
        .sample(&client, workers.sum(|c| &c.values.copies))
        .sample(&store, workers.sum(|c| &c.values.stored_copies));
    page.counter("rebate_value_copied_bytes_total", "Bytes of those copies.")
        .sample(&client, workers.sum(|c| &c.values.copied_bytes))
        .sample(&store, workers.sum(|c| &c.values.stored_copied_bytes));
}

pub(super) fn upstream(page: &mut Exposition, workers: &Workers<'_>) {
    page.counter("rebate_upstream_errors_total", "Requests that memcached servers failed.")
        .sample(&[], workers.sum(|c| &c.commands.upstream_errors));
    page.counter("rebate_upstream_connects_total", "Connections made to memcached servers.")
        .sample(&[], workers.sum(|c| &c.commands.upstream_connects));
    page.counter("rebate_upstream_timeouts_total", "Requests that timed out there.")
        .sample(&[], workers.sum(|c| &c.commands.upstream_timeouts));
}

fn listeners(page: &mut Exposition, connections: &Connections) {
    let mut open = page.gauge("rebate_listener_connections", "Connections open now, by listener.");
    for (protocol, count, _) in connections.by_protocol() {
        open.sample(&[("listener", protocol.name())], count);
    }
    let help = "Of the connections at most those that only this kind of listener may take.";
    let mut kept = page.gauge("rebate_listener_connections_reserved", help);
    for (protocol, _, count) in connections.by_protocol() {
        kept.sample(&[("listener", protocol.name())], count);
    }
}

fn tls(page: &mut Exposition, tls: &Tls) {
    let counters = &tls.counters;
    page.counter("rebate_tls_handshakes_total", "TLS handshakes that clients completed.")
        .sample(&[], counters.handshakes.read());
    page.counter("rebate_tls_handshakes_failed_total", "TLS handshakes that failed, by reason.")
        .sample(&[("reason", "timeout")], counters.failed_timeout.read())
        .sample(&[("reason", "replaced")], counters.failed_replaced.read())
        .sample(&[("reason", "plain")], counters.failed_plain.read())
        .sample(&[("reason", "version")], counters.failed_version.read())
        .sample(&[("reason", "certificate")], counters.failed_certificate.read())
        .sample(&[("reason", "closed")], counters.failed_closed.read())
        .sample(&[("reason", "other")], counters.failed_other.read());
    page.counter("rebate_tls_reloads_total", "Times certificates were loaded again, by result.")
        .sample(&[("of", "listeners"), ("result", "success")], counters.reloads.read())
        .sample(&[("of", "listeners"), ("result", "failure")], counters.reloads_failed.read())
        .sample(&[("of", "upstream"), ("result", "success")], counters.reloads_upstream.read())
        .sample(
            &[("of", "upstream"), ("result", "failure")],
            counters.reloads_upstream_failed.read(),
        );
    let mut family = page.gauge(
        "rebate_tls_certificate_expiry_timestamp_seconds",
        "When certificates expire, since the Unix epoch.",
    );
    if let Some(expires_unix_s) = tls.expires_unix_s() {
        family.sample(&[("of", "listeners")], expires_unix_s);
    }
    if let Some(expires_unix_s) = tls.upstream_expires_unix_s() {
        family.sample(&[("of", "upstream")], expires_unix_s);
    }
    for (server, expires_unix_s) in tls.servers.expiries() {
        family.sample(&[("of", "server"), ("server", &server)], expires_unix_s);
    }
}

fn readiness(page: &mut Exposition, readiness: &Readiness) {
    page.gauge("rebate_ready", "Whether clients should be sent here, as on /readyz.")
        .sample(&[], u8::from(readiness.judge().is_ok()));
    let links = readiness.links();
    if links.is_empty() {
        return;
    }
    let mut family =
        page.gauge("rebate_upstream_up", "Whether a server of the ring answers a worker.");
    for (worker, server, is_up) in links {
        let worker = worker.to_string();
        family.sample(&[("worker", &worker), ("server", &server)], u8::from(is_up));
    }
}

pub(super) fn tasks(
    page: &mut Exposition,
    workers: &Workers<'_>,
    control: &Control,
    runtimes: &[Arc<runtime::Metrics>],
) {
    let drivers = runtimes.iter().map(|runtime| runtime.driver_restarts()).sum::<u64>();
    page.counter("rebate_task_restarts_total", "Tasks that ended and were started again.")
        .sample(&[("task", "link")], workers.sum(|c| &c.tasks.restarts_link))
        .sample(&[("task", "sweep")], workers.sum(|c| &c.tasks.restarts_sweep))
        .sample(&[("task", "dictionaries")], workers.sum(|c| &c.tasks.restarts_dictionaries))
        .sample(&[("task", "turns")], workers.sum(|c| &c.tasks.restarts_turns))
        .sample(&[("task", "driver")], drivers)
        .sample(&[("task", "acceptor")], control.restarts_acceptor.read())
        .sample(&[("task", "admin")], control.restarts_admin.read())
        .sample(&[("task", "reporter")], control.restarts_reporter.read())
        .sample(&[("task", "otlp")], control.restarts_otlp.read())
        .sample(&[("task", "readiness")], control.restarts_readiness.read())
        .sample(&[("task", "members")], control.restarts_members.read())
        .sample(&[("task", "idle memory")], control.restarts_idle_memory.read())
        .sample(&[("task", "device log")], control.restarts_device_log.read())
        .sample(&[("task", "tls watch")], control.restarts_tls_watch.read())
        .sample(&[("task", "login watch")], control.restarts_login_watch.read())
        .sample(&[("task", "value key watch")], control.restarts_value_key_watch.read());
    page.counter("rebate_connections_failed_total", "Connections that a defect ended.")
        .sample(&[], workers.sum(|c| &c.tasks.connections_failed));
    page.counter("rebate_accept_errors_total", "Connections that could not be accepted.")
        .sample(&[], control.accept_errors.read());
}

fn otlp(page: &mut Exposition, export: &Export) {
    let help = "Data points, spans and log lines that the collector took.";
    let mut family = page.counter("rebate_otlp_exported_total", help);
    for (signal, exported, _) in export.by_signal() {
        family.sample(&[("signal", signal)], exported);
    }
    let help =
        "Data points, spans and log lines that were dropped: the queue was full, or refused.";
    let mut family = page.counter("rebate_otlp_dropped_total", help);
    for (signal, _, dropped) in export.by_signal() {
        family.sample(&[("signal", signal)], dropped);
    }
    page.counter("rebate_otlp_failures_total", "Calls to the collector that failed.")
        .sample(&[], export.counts.failures());
}

fn log(page: &mut Exposition, losses: &LogLosses) {
    page.counter("rebate_log_lines_lost_total", "Lines of the log that were not written, by why.")
        .sample(&[("reason", "queue_full")], losses.queue_full.read())
        .sample(&[("reason", "write_failed")], losses.write_failed.read());
}

pub(super) fn lanes(page: &mut Exposition, workers: &Workers<'_>) {
    page.gauge("rebate_lanes", "Lanes of frontends on this host open now.")
        .sample(&[], workers.sum(|c| &c.lanes.open));
    page.counter("rebate_lanes_stalled_total", "Lanes cut: others needed what they left unread.")
        .sample(&[], workers.sum(|c| &c.lanes.stalled));
    page.gauge("rebate_lane_held_bytes", "Bytes of inputs and results that lanes hold now.")
        .sample(&[], workers.sum(|c| &c.lanes.held_bytes));
    page.counter("rebate_lane_jobs_total", "Jobs of lanes, by whether they were begun.")
        .sample(&[("result", "begun")], workers.sum(|c| &c.lanes.jobs))
        .sample(&[("result", "busy")], workers.sum(|c| &c.lanes.jobs_busy))
        .sample(&[("result", "refused")], workers.sum(|c| &c.lanes.jobs_refused));
    page.counter("rebate_lane_bells_total", "Times that a lane's frontend was woken.")
        .sample(&[], workers.sum(|c| &c.lanes.doorbells));
    page.counter("rebate_lane_copies_total", "Values copied on account of lanes.")
        .sample(&[], workers.sum(|c| &c.lanes.copies));
    page.counter("rebate_lane_copied_bytes_total", "Bytes of values copied on account of lanes.")
        .sample(&[], workers.sum(|c| &c.lanes.copied_bytes));
}

pub(super) fn near(page: &mut Exposition, workers: &Workers<'_>) {
    page.gauge("rebate_near_held_bytes", "Bytes of memory shared with near clients now.")
        .sample(&[], workers.sum(|c| &c.near.held_bytes));
    page.counter("rebate_near_refused_total", "Near clients refused: a wrong or late greeting.")
        .sample(&[], workers.sum(|c| &c.near.refused));
    page.counter("rebate_near_broken_total", "Near clients cut: they broke the memory's rules.")
        .sample(&[], workers.sum(|c| &c.near.broken));
    page.counter("rebate_near_late_total", "Packets of near clients after their deadline.")
        .sample(&[], workers.sum(|c| &c.near.late));
    page.counter("rebate_near_bells_total", "Times that a near client was woken.")
        .sample(&[], workers.sum(|c| &c.near.doorbells));
    page.counter(
        "rebate_near_sleeps_total",
        "Times that the server slept until a near client rang.",
    )
    .sample(&[], workers.sum(|c| &c.near.sleeps));
}

pub(super) fn grpc(page: &mut Exposition, workers: &Workers<'_>) {
    page.gauge("rebate_grpc_connections", "gRPC connections open now.")
        .sample(&[], workers.sum(|c| &c.grpc.connections));
    page.counter(
        "rebate_grpc_connections_stalled_total",
        "gRPC connections cut: they held memory that others needed, and nothing moved on them.",
    )
    .sample(&[], workers.sum(|c| &c.grpc.stalled));
    page.counter("rebate_grpc_calls_total", "gRPC calls begun, by service.")
        .sample(&[("service", "cache")], workers.sum(|c| &c.grpc.calls_cache))
        .sample(&[("service", "compression")], workers.sum(|c| &c.grpc.calls_compression))
        .sample(&[("service", "store")], workers.sum(|c| &c.grpc.calls_store))
        .sample(&[("service", "scheduler")], workers.sum(|c| &c.grpc.calls_scheduler))
        .sample(&[("service", "other")], workers.sum(|c| &c.grpc.calls_other));
    page.counter("rebate_grpc_errors_total", "gRPC calls that ended with an error, by its kind.")
        .sample(&[("kind", "exhausted")], workers.sum(|c| &c.grpc.errors_exhausted))
        .sample(&[("kind", "deadline")], workers.sum(|c| &c.grpc.errors_deadline))
        .sample(&[("kind", "invalid")], workers.sum(|c| &c.grpc.errors_invalid))
        .sample(&[("kind", "unavailable")], workers.sum(|c| &c.grpc.errors_unavailable))
        .sample(&[("kind", "other")], workers.sum(|c| &c.grpc.errors_other));
}

pub(super) fn access(page: &mut Exposition, workers: &Workers<'_>, control: &Control) {
    page.counter("rebate_access_refused_total", "Commands, calls and connections refused, by why.")
        .sample(
            &[("reason", "unauthenticated")],
            workers.sum(|c| &c.access.refused_unauthenticated),
        )
        .sample(&[("reason", "rights")], workers.sum(|c| &c.access.refused_rights))
        .sample(&[("reason", "key")], workers.sum(|c| &c.access.refused_key))
        .sample(&[("reason", "service")], workers.sum(|c| &c.access.refused_service))
        .sample(&[("reason", "connections")], workers.sum(|c| &c.access.refused_connections))
        .sample(&[("reason", "quota")], workers.sum(|c| &c.access.quota_refused));
    page.counter("rebate_access_quota_waits_total", "Requests that waited for their quota.")
        .sample(&[], workers.sum(|c| &c.access.quota_waits));
    page.counter("rebate_logins_total", "Logins with a password.")
        .sample(&[], workers.sum(|c| &c.commands.auth_cmds));
    page.counter("rebate_logins_failed_total", "Logins with a wrong password.")
        .sample(&[], workers.sum(|c| &c.commands.auth_errors));
    page.counter("rebate_logins_delayed_total", "Logins that failures before them delayed.")
        .sample(&[], workers.sum(|c| &c.access.logins_delayed));
    page.counter("rebate_access_reloads_total", "Reloads of the rules about clients, by result.")
        .sample(&[("result", "success")], control.access_reloads.read())
        .sample(&[("result", "failure")], control.access_reloads_failed.read());
    page.counter("rebate_login_reloads_total", "Reads of this process's own logins, by result.")
        .sample(&[("result", "success")], control.login_reloads.read())
        .sample(&[("result", "failure")], control.login_reloads_failed.read());
    page.counter("rebate_audit_lines_left_out_total", "Lines above the audit log's rate.")
        .sample(&[], workers.sum(|c| &c.access.audit_lines_left_out));
}

fn jobs(page: &mut Exposition, runtimes: &[Arc<runtime::Metrics>]) {
    let mut jobs = Sums::by(["op", "device", "placement", "reason", "outcome"]);
    let mut time_ns = Sums::by(["op", "device", "part"]);
    let mut bytes = Sums::by(["op", "device", "direction"]);
    let mut fallbacks = Sums::by(["from", "reason"]);
    let mut lost = Sums::by(["device"]);
    let mut timeouts = Sums::by(["device"]);
    let mut missed = Sums::by(["device"]);
    for metrics in runtimes {
        for path in metrics.paths() {
            let (op, device) = (path.op.name(), path.device.as_str());
            let done = path.jobs.saturating_sub(path.failed + path.did_not_fit);
            let outcomes =
                [("done", done), ("failed", path.failed), ("did_not_fit", path.did_not_fit)];
            for (outcome, count) in outcomes {
                let (placement, reason) = (path.placement.name(), path.reason.name());
                jobs.add([op, device, placement, reason, outcome], count);
            }
            time_ns.add([op, device, "service"], path.service.0);
            time_ns.add([op, device, "queueing"], path.queueing.0);
            bytes.add([op, device, "input"], path.input_bytes);
            bytes.add([op, device, "output"], path.output_bytes);
        }
        for (device, reason, count) in metrics.fallbacks() {
            fallbacks.add([&device, reason.name()], count);
        }
        for (device, lost_times, timed_out) in metrics.losses() {
            lost.add([&device], lost_times);
            timeouts.add([&device], timed_out);
        }
        for (device, count) in metrics.missed_deadlines() {
            missed.add([&device], count);
        }
    }
    let count = |count| count;
    let help = "Jobs by where they ran, how they were waited for, why, and what they came to.";
    jobs.write(page.counter("rebate_jobs_total", help), count);
    let help = "Time of jobs in the device and waiting beside it.";
    let in_seconds = |ns| seconds(Nanos(ns));
    time_ns.write(page.counter("rebate_job_seconds_total", help), in_seconds);
    let help = "Bytes into and out of jobs that were done.";
    bytes.write(page.counter("rebate_job_bytes_total", help), count);
    chains(page, runtimes);
    job_sizes(page, runtimes);
    let help = "Jobs redone in software, by the device that did not do them.";
    fallbacks.write(page.counter("rebate_fallback_total", help), count);
    let help = "Times that a device was retired.";
    lost.write(page.counter("rebate_device_lost_total", help), count);
    let help = "Jobs that a device kept too long.";
    timeouts.write(page.counter("rebate_device_timeouts_total", help), count);
    let help = "Jobs done after their deadline, by the device that did them.";
    missed.write(page.counter("rebate_deadlines_missed_total", help), count);
    trust(page, runtimes);
    let sum =
        |of: fn(&runtime::Metrics) -> u64| runtimes.iter().map(|runtime| of(runtime)).sum::<u64>();
    page.counter("rebate_jobs_detached_total", "Jobs whose owner went away first.")
        .sample(&[], sum(runtime::Metrics::detached));
    page.counter("rebate_jobs_late_total", "Completions of jobs that had timed out.")
        .sample(&[], sum(runtime::Metrics::late));
}

/// Writes the numbers of chains that ran in one trip, and of those whose ops were placed one by one.
fn chains(page: &mut Exposition, runtimes: &[Arc<runtime::Metrics>]) {
    let mut chains = Sums::by(["chain", "device", "placement", "reason"]);
    let mut apart = Sums::by(["chain"]);
    for metrics in runtimes {
        for path in metrics.chains() {
            let (placement, reason) = (path.placement.name(), path.reason.name());
            chains.add([path.kind.name(), &path.device, placement, reason], path.chains);
        }
        for (kind, count) in metrics.chains_apart() {
            apart.add([kind.name()], count);
        }
    }
    let count = |count| count;
    let help = "Chains of ops that ran in one trip, by where, how they were waited for, and why.";
    chains.write(page.counter("rebate_chains_total", help), count);
    let help = "Chains whose ops the policy placed one by one.";
    apart.write(page.counter("rebate_chains_apart_total", help), count);
}

/// Writes the numbers of wrong and verified results of devices, and how often devices were retired for them.
fn trust(page: &mut Exposition, runtimes: &[Arc<runtime::Metrics>]) {
    let mut corrupt = Sums::by(["device", "op"]);
    let mut verified = Sums::by(["device"]);
    let mut distrusted = Sums::by(["device"]);
    for metrics in runtimes {
        for (device, written, read) in metrics.corrupt() {
            corrupt.add([&device, "compress"], written);
            corrupt.add([&device, "decompress"], read);
        }
        for (device, results, times) in metrics.verified() {
            verified.add([&device], results);
            distrusted.add([&device], times);
        }
    }
    let count = |count| count;
    let help = "Wrong results of a device: streams that it wrote and values that it read.";
    corrupt.write(page.counter("rebate_device_corrupt_total", help), count);
    let help = "Results of a device that software read back before they were used.";
    verified.write(page.counter("rebate_device_verified_total", help), count);
    let help = "Times that a device was taken out of service for wrong results or failed jobs.";
    distrusted.write(page.counter("rebate_device_distrusted_total", help), count);
}

fn job_sizes(page: &mut Exposition, runtimes: &[Arc<runtime::Metrics>]) {
    let mut ops: BTreeMap<&str, BTreeMap<u32, (u64, u64)>> = BTreeMap::new();
    for path in runtimes.iter().flat_map(|runtime| runtime.paths()) {
        for size in &path.sizes {
            let sums = ops.entry(path.op.name()).or_default().entry(size.log2).or_default();
            *sums = (sums.0 + size.jobs, sums.1 + size.work_bytes);
        }
    }
    let help = "Jobs by the size of their uncompressed side.";
    let mut family = page.histogram("rebate_job_size_bytes", help);
    for (op, by_log2) in &ops {
        family.sizes(&[("op", op)], by_log2);
    }
}

/// Writes the counters that are specific to a kind of device, such as a virtual device.
fn devices(page: &mut Exposition, devices: &[Arc<dyn Device>]) {
    let help = "What a device counts beside its jobs.";
    let mut family = page.counter("rebate_device_counter_total", help);
    for device in devices {
        for (counter, count) in device.counters() {
            family.sample(&[("device", device.name()), ("counter", counter)], count);
        }
    }
}

/// Writes those families of memcached's exporter that this server counts.
fn memcached(page: &mut Exposition, workers: &Workers<'_>, uptime: Nanos, connections_max: usize) {
    page.gauge("memcached_up", "Always 1: this page is the server's own.").sample(&[], 1);
    page.counter("memcached_uptime_seconds", "Time since the start.").sample(&[], seconds(uptime));
    page.gauge("memcached_max_connections", "Client connections at most.")
        .sample(&[], connections_max);
    let mut family = page.counter("memcached_commands_total", "Commands by status.");
    for (command, status, count) in workers.results() {
        family.sample(&[("command", command), ("status", status)], count);
    }
    family.sample(&[("command", "set"), ("status", "hit")], workers.sets());
    page.gauge("memcached_current_connections", "Client connections open now.")
        .sample(&[], workers.sum(|c| &c.commands.curr_connections));
    page.counter("memcached_connections_total", "Client connections served.")
        .sample(&[], workers.sum(|c| &c.commands.total_connections));
    page.counter("memcached_read_bytes_total", "Bytes from clients.")
        .sample(&[], workers.sum(|c| &c.commands.bytes_read));
    page.counter("memcached_written_bytes_total", "Bytes to clients.")
        .sample(&[], workers.sum(|c| &c.commands.bytes_written));
}

/// Writes the metrics of the logical values that are kept.
fn hot(page: &mut Exposition, stats: &HotStats) {
    page.gauge("rebate_hot_items", "Logical values of compressed items that are kept.")
        .sample(&[], stats.items);
    page.gauge("rebate_hot_bytes", "Memory of the store that they take.").sample(&[], stats.bytes);
    page.counter("rebate_hot_admissions_total", "Items whose value began to be kept.")
        .sample(&[], stats.admissions);
    page.counter("rebate_hot_renewals_total", "New values of such items that replaced older ones.")
        .sample(&[], stats.renewals);
    page.counter("rebate_hot_evictions_total", "Kept values that made way for others.")
        .sample(&[], stats.evictions);
}

/// Writes the embedded store's metrics under this server's names and under those of memcached's exporter. The
/// servers of a ring have their own exporters.
fn items(page: &mut Exposition, stats: &embedded::Stats) {
    page.gauge("rebate_store_items", "Items held.").sample(&[], stats.curr_items);
    page.gauge("rebate_store_bytes", "Bytes held: keys, stored values and overhead.")
        .sample(&[], stats.bytes);
    page.gauge("rebate_store_limit_bytes", "Memory for items.").sample(&[], stats.limit_maxbytes);
    page.counter("rebate_store_items_total", "Items stored.").sample(&[], stats.total_items);
    let unfetched = stats.evicted_unfetched.min(stats.evictions);
    page.counter("rebate_store_evictions_total", "Live items evicted, by whether ever fetched.")
        .sample(&[("fetched", "yes")], stats.evictions - unfetched)
        .sample(&[("fetched", "no")], unfetched);
    if let Some((_, idle_s)) = stats.evicted_last {
        page.gauge(
            "rebate_store_evicted_idle_seconds",
            "How long the last evicted item had not been accessed.",
        )
        .sample(&[], u64::from(idle_s));
    }
    page.counter("rebate_store_reclaimed_total", "Expired items whose memory was reused, by whom.")
        .sample(&[("by", "store")], stats.reclaimed)
        .sample(&[("by", "sweep")], stats.crawler_reclaimed);
    page.counter("rebate_store_expired_unfetched_total", "Items that expired unfetched.")
        .sample(&[], stats.expired_unfetched);
    page.counter("rebate_store_dead_hits_total", "Look-ups that found a dead item, by why.")
        .sample(&[("reason", "expired")], stats.get_expired)
        .sample(&[("reason", "flushed")], stats.get_flushed);
    page.gauge("memcached_current_items", "Items held.").sample(&[], stats.curr_items);
    page.gauge("memcached_current_bytes", "Bytes held.").sample(&[], stats.bytes);
    page.gauge("memcached_limit_bytes", "Memory for items.").sample(&[], stats.limit_maxbytes);
    page.counter("memcached_items_total", "Items stored.").sample(&[], stats.total_items);
    page.counter("memcached_items_evicted_total", "Live items evicted.")
        .sample(&[], stats.evictions);
    page.counter("memcached_items_reclaimed_total", "Expired items whose memory was reused.")
        .sample(&[], stats.reclaimed);
}

/// Writes how the store started, if it has a file.
fn restarted(page: &mut Exposition, restart: &Restart) {
    let mut outcomes =
        page.gauge("rebate_restart_outcome", "1 for how the store started, 0 for other ways.");
    for outcome in Outcome::ALL {
        let labels = [("outcome", outcome.name())];
        outcomes.sample(&labels, u64::from(outcome == restart.outcome));
    }
    let RestoredItems { loaded, expired, evicted, skipped } = restart.items;
    page.gauge("rebate_restart_items", "Items of the last process, by what became of them.")
        .sample(&[("result", "loaded")], loaded)
        .sample(&[("result", "expired")], expired)
        .sample(&[("result", "evicted")], evicted)
        .sample(&[("result", "skipped")], skipped);
    page.gauge("rebate_restart_duration_seconds", "Time that loading the items took.")
        .sample(&[], restart.took.as_secs_f64());
}
