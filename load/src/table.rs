//! Formats the report for people: aligned text with units in the headers.

use std::fmt::Write;

use crate::Pace;
use crate::report::{LoadReport, OpReport, Percentiles};

impl LoadReport {
    /// Formats the report as a plain-text table that ends with a newline.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let written = self.write_table(&mut out);
        written.expect("a string takes every write");
        out
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        self.write_head(out)?;
        writeln!(
            out,
            "\n{:<13} {:>10} {:>11} {:>10} {:>9} {:>9} {:>8}",
            "requests", "offered/s", "answered/s", "count", "errors", "hits", "hit %"
        )?;
        for (name, op) in self.ops() {
            write_counts(out, name, op)?;
        }
        writeln!(
            out,
            "\n{:<13} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "latency [us]", "p50", "p90", "p99", "p99.9", "max", "mean"
        )?;
        for (name, op) in self.ops() {
            write_times(out, name, &op.latency)?;
            write_times(out, &format!("  {name} sent"), &op.service)?;
        }
        write_times(out, "lateness", &self.generator.lateness)?;
        writeln!(out, "latency counts from when a request was due, `sent` from when it was sent")?;
        self.write_foot(out)
    }

    /// Lists the kinds of requests that occurred.
    fn ops(&self) -> impl Iterator<Item = (&'static str, &OpReport)> {
        let all = [("get", &self.get), ("set", &self.set), ("fill", &self.fill)];
        all.into_iter().filter(|(_, op)| op.offered > 0)
    }

    fn write_head(&self, out: &mut String) -> std::fmt::Result {
        let spec = &self.spec;
        let targets: Vec<_> = spec.targets.iter().map(ToString::to_string).collect();
        let preset = spec.preset.as_deref().unwrap_or("none");
        writeln!(out, "target        {}", targets.join(", "))?;
        match spec.pace {
            Pace::Open { rate_per_s, arrivals } => {
                writeln!(out, "load          open loop, {rate_per_s} requests/s, {arrivals:?}")?;
            }
            Pace::Closed { depth } => {
                writeln!(out, "load          closed loop, {depth} in flight on each connection")?;
            }
        }
        writeln!(out, "connections   {} on {} threads", spec.connections, spec.threads)?;
        writeln!(out, "workload      {} keys, preset {preset}", spec.keys)?;
        let stopped = if self.stopped_early { ", stopped early" } else { "" };
        writeln!(out, "measured      {:.2} s{stopped}", self.measured_s)?;
        if let Some(populate) = &self.prepopulate {
            let (stored, failed, elapsed_s) =
                (populate.stored, populate.failed, populate.elapsed_s);
            writeln!(out, "populated     {stored} keys in {elapsed_s:.2} s, {failed} failed")?;
        }
        Ok(())
    }

    fn write_foot(&self, out: &mut String) -> std::fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(
            out,
            "\nbytes         {:.1} MiB out, {:.1} MiB in",
            mib(self.bytes_out),
            mib(self.bytes_in)
        )?;
        let checked = if self.spec.verify { "" } else { " (not checked)" };
        writeln!(out, "wrong values  {}{checked}", self.wrong.count)?;
        for example in &self.wrong.examples {
            writeln!(out, "              {example}")?;
        }
        let lines = [
            ("not sent", self.unsent, "requests had no room on any connection"),
            ("not answered", self.unanswered, "requests had no answer at the end"),
            ("lost", self.connections.lost, "connections"),
            ("reopened", self.connections.reopened, "connections"),
            ("not reopened", self.connections.failed_attempts, "attempts"),
        ];
        for (name, count, what) in lines.into_iter().filter(|(_, count, _)| *count > 0) {
            writeln!(out, "{name:<13} {count} {what}")?;
        }
        for (message, count) in &self.errors {
            writeln!(out, "error         {count} x {message}")?;
        }
        let busy = self.generator.cpu_utilisation * 100.0;
        match &self.generator.reason {
            None => writeln!(out, "generator     {busy:.0} % busy, not the bottleneck"),
            Some(reason) => writeln!(out, "generator     THE BOTTLENECK: {reason}"),
        }
    }
}

fn write_counts(out: &mut String, name: &str, op: &OpReport) -> std::fmt::Result {
    let hit_percent = op.hit_ratio.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio * 100.0));
    writeln!(
        out,
        "{name:<13} {:>10.1} {:>11.1} {:>10} {:>9} {:>9} {hit_percent:>8}",
        op.offered_per_s, op.achieved_per_s, op.answered, op.errors, op.hits
    )
}

fn write_times(out: &mut String, name: &str, times: &Percentiles) -> std::fmt::Result {
    if times.count == 0 {
        return Ok(());
    }
    let us = |ns: u64| ns as f64 / 1e3;
    writeln!(
        out,
        "{name:<13} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
        us(times.p50_ns),
        us(times.p90_ns),
        us(times.p99_ns),
        us(times.p999_ns),
        us(times.max_ns),
        times.mean_ns / 1e3
    )
}
