//! Writes Prometheus' text exposition format, version 0.0.4. Each metric family is written once, with its
//! description and all its samples.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use units::Nanos;

use crate::counters::Histogram;

/// The media type of the text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text written so far.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
    families: Vec<&'static str>,
}

impl Exposition {
    /// Begins a family of numbers that only grow.
    pub(super) fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    /// Begins a family of numbers that go up and down.
    pub(super) fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// Begins a family of distributions.
    pub(super) fn histogram(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "histogram", help)
    }

    /// Returns the whole text.
    pub(super) fn finish(self) -> String {
        self.text
    }

    /// Returns the length of the text so far.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Repeats the families written after offset `begin`, with `old` in place of `new` in their names. The
    /// help text of a repeated family names its new name.
    pub(super) fn repeat_as(&mut self, begin: usize, new: &str, old: &str) {
        let text = self.text.split_off(begin);
        self.text.push_str(&text);
        for line in text.lines() {
            let _ = match line.strip_prefix("# HELP ").and_then(|help| help.split_once(' ')) {
                Some((name, _)) => {
                    writeln!(self.text, "# HELP {} Old name of {name}.", name.replacen(new, old, 1))
                }
                None => writeln!(self.text, "{}", line.replacen(new, old, 1)),
            };
        }
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        debug_assert!(!self.families.contains(&name), "{name} is a family already");
        self.families.push(name);
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Family { text: &mut self.text, name }
    }
}

/// One family, to which samples are added.
pub(super) struct Family<'t> {
    text: &'t mut String,
    name: &'static str,
}

impl Family<'_> {
    /// Adds one sample.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.line("", labels, value);
        self
    }

    /// Adds one distribution of durations (s), summed over `parts`.
    pub(super) fn durations(&mut self, labels: &[(&str, &str)], parts: &[&Histogram]) -> &mut Self {
        let counts: Vec<_> = parts.iter().map(|part| part.counts()).collect();
        let mut cumulated = 0;
        for bucket in 0..Histogram::BUCKETS {
            cumulated += counts.iter().map(|counts| counts[bucket]).sum::<u64>();
            let bound = Histogram::bound(bucket)
                .map_or_else(|| "+Inf".to_owned(), |bound| seconds(bound).to_string());
            let labels: Vec<_> = labels.iter().copied().chain([("le", &*bound)]).collect();
            self.line("_bucket", &labels, cumulated);
        }
        let sum = Nanos(parts.iter().map(|part| part.sum().0).sum());
        self.line("_sum", labels, seconds(sum));
        self.line("_count", labels, cumulated);
        self
    }

    /// Adds one distribution of whole numbers by powers of two. `by_log2` maps n to the count and the sum of
    /// the numbers from 2^n to below 2^(n+1).
    pub(super) fn sizes(&mut self, labels: &[(&str, &str)], by_log2: &BTreeMap<u32, (u64, u64)>) {
        let last = by_log2.keys().next_back().map_or(0, |log2| (*log2).min(62));
        let mut cumulated = 0;
        for log2 in 0..=last {
            cumulated += by_log2.get(&log2).map_or(0, |(count, _)| *count);
            let bound = ((1_u64 << (log2 + 1)) - 1).to_string();
            let labels: Vec<_> = labels.iter().copied().chain([("le", &*bound)]).collect();
            self.line("_bucket", &labels, cumulated);
        }
        let (all, sum) =
            by_log2.values().fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        let labels_of_all: Vec<_> = labels.iter().copied().chain([("le", "+Inf")]).collect();
        self.line("_bucket", &labels_of_all, all);
        self.line("_sum", labels, sum);
        self.line("_count", labels, all);
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{open}{label}=\"{}\"", escaped(text));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

/// The samples of one family, summed by the values of their labels before they are written.
pub(super) struct Sums<const N: usize> {
    labels: [&'static str; N],
    sums: BTreeMap<[String; N], u64>,
}

impl<const N: usize> Sums<N> {
    pub(super) fn by(labels: [&'static str; N]) -> Self {
        Self { labels, sums: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, values: [&str; N], count: u64) {
        *self.sums.entry(values.map(str::to_owned)).or_default() += count;
    }

    /// Adds the sums to their family. `shown` converts each sum.
    pub(super) fn write<T: Display>(&self, mut family: Family<'_>, shown: impl Fn(u64) -> T) {
        for (values, sum) in &self.sums {
            let labels: [_; N] = std::array::from_fn(|i| (self.labels[i], values[i].as_str()));
            family.sample(&labels, shown(*sum));
        }
    }
}

/// Returns a duration in seconds, the unit of metrics.
pub(super) fn seconds(Nanos(ns): Nanos) -> f64 {
    ns as f64 / 1e9
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_cannot_end_their_quotes() {
        let mut page = Exposition::default();
        page.gauge("a", "B.").sample(&[("x", "\"\\\n"), ("y", "z")], 1.5);
        let text = "# HELP a B.\n# TYPE a gauge\na{x=\"\\\"\\\\\\n\",y=\"z\"} 1.5\n";
        assert_eq!(page.finish(), text);
    }

    #[test]
    fn old_names_repeat_the_samples() {
        let mut page = Exposition::default();
        page.gauge("a", "A.").sample(&[], 1);
        let begin = page.len();
        page.counter("new_b", "B.").sample(&[("x", "new_")], 2);
        page.repeat_as(begin, "new_", "old_");
        let again = "# HELP old_b Old name of new_b.\n# TYPE old_b counter\nold_b{x=\"new_\"} 2\n";
        let text = page.finish();
        assert!(text.ends_with(again) && !text.contains("old_a"), "{text}");
    }

    #[test]
    fn sums_are_by_label_values() {
        let mut sums = Sums::by(["op", "device"]);
        sums.add(["copy", "a"], 1);
        sums.add(["copy", "b"], 2);
        sums.add(["copy", "a"], 3);
        let mut page = Exposition::default();
        sums.write(page.counter("n", "N."), |n| n);
        let text = page.finish();
        let samples = "n{op=\"copy\",device=\"a\"} 4\nn{op=\"copy\",device=\"b\"} 2\n";
        assert!(text.ends_with(samples), "{text}");
    }
}
