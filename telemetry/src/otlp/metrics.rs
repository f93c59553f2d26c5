//! Metrics in Prometheus' text format (version 0.0.4) as OTLP's messages, by the rules of OpenTelemetry's specification
//! "Prometheus and OpenMetrics Compatibility". The text is that of this process's own page.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use units::{Nanos, unix_time};

use super::attributes::{scope, text};

/// Returns the message that exports a page, and the number of its data points. Counters count since `began`.
pub(super) fn request(
    page: &str,
    resource: Resource,
    began: Nanos,
) -> (ExportMetricsServiceRequest, usize) {
    let times = Times { began: began.0, now: Nanos::from(unix_time()).0 };
    let metrics = metrics(page, times);
    let points = metrics.iter().map(points).sum();
    let scoped = ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() };
    let resource_metrics = ResourceMetrics {
        resource: Some(resource),
        scope_metrics: vec![scoped],
        ..ResourceMetrics::default()
    };
    (ExportMetricsServiceRequest { resource_metrics: vec![resource_metrics] }, points)
}

fn points(metric: &Metric) -> usize {
    match &metric.data {
        Some(Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(Data::Sum(sum)) => sum.data_points.len(),
        Some(Data::Histogram(histogram)) => histogram.data_points.len(),
        _ => 0,
    }
}

/// When counting began, and when it was read (Unix ns).
#[derive(Clone, Copy)]
struct Times {
    began: u64,
    now: u64,
}

fn metrics(page: &str, times: Times) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    let mut description = "";
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            description = help.split_once(' ').map_or("", |(_, words)| words);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap_or((kind, ""));
            metrics.push(Metric {
                name: name.to_owned(),
                description: description.to_owned(),
                unit: unit(name).to_owned(),
                data: Some(data(kind)),
                ..Metric::default()
            });
        } else if let (Some(metric), Some(sample)) = (metrics.last_mut(), Sample::read(line)) {
            add(metric, sample, times);
        }
    }
    metrics
}

fn data(kind: &str) -> Data {
    let cumulative = AggregationTemporality::Cumulative.into();
    match kind {
        "counter" => Data::Sum(Sum {
            data_points: Vec::new(),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        "histogram" => Data::Histogram(Histogram {
            data_points: Vec::new(),
            aggregation_temporality: cumulative,
        }),
        _ => Data::Gauge(Gauge::default()),
    }
}

/// Returns the unit that the name of a metric states, in the notation of UCUM.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some("ratio") => "1",
        _ => "",
    }
}

fn add(metric: &mut Metric, sample: Sample<'_>, times: Times) {
    match &mut metric.data {
        Some(Data::Sum(sum)) => sum.data_points.push(sample.point(times)),
        Some(Data::Gauge(gauge)) => gauge.data_points.push(sample.point(times)),
        Some(Data::Histogram(histogram)) => add_to(&mut histogram.data_points, sample, times),
        _ => {}
    }
}

/// Adds a line of a distribution. The lines of one distribution follow each other: its buckets, its sum, its count.
fn add_to(points: &mut Vec<HistogramDataPoint>, sample: Sample<'_>, times: Times) {
    let Sample { name, labels, value } = sample;
    let bound = labels.iter().position(|(label, _)| *label == "le");
    let attributes = attributes(&labels);
    if points.last().is_none_or(|last| last.attributes != attributes) {
        points.push(HistogramDataPoint {
            attributes,
            start_time_unix_nano: times.began,
            time_unix_nano: times.now,
            ..HistogramDataPoint::default()
        });
    }
    let Some(point) = points.last_mut() else { return };
    if name.ends_with("_sum") {
        point.sum = Some(value);
    } else if name.ends_with("_count") {
        point.count = value as u64;
    } else if let Some(bound) = bound {
        let below: u64 = point.bucket_counts.iter().sum();
        point.bucket_counts.push((value as u64).saturating_sub(below));
        if let Ok(bound) = labels[bound].1.parse::<f64>()
            && bound.is_finite()
        {
            point.explicit_bounds.push(bound);
        }
    }
}

/// One line with a number.
struct Sample<'p> {
    name: &'p str,
    labels: Vec<(&'p str, String)>,
    value: f64,
}

impl<'p> Sample<'p> {
    fn read(line: &'p str) -> Option<Self> {
        let name_bytes = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(name_bytes);
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            while let Some((label, quoted)) = rest.split_once("=\"") {
                let (value, behind) = unquoted(quoted)?;
                labels.push((label, value));
                rest = behind;
                match rest.strip_prefix(',') {
                    Some(next) => rest = next,
                    None => break,
                }
            }
            rest = rest.strip_prefix('}')?;
        }
        let value = rest.trim_start().parse().ok()?;
        Some(Self { name, labels, value })
    }

    fn point(self, times: Times) -> NumberDataPoint {
        NumberDataPoint {
            attributes: attributes(&self.labels),
            start_time_unix_nano: times.began,
            time_unix_nano: times.now,
            value: Some(Value::AsDouble(self.value)),
            ..NumberDataPoint::default()
        }
    }
}

/// Reads a quoted text up to its closing quote. Returns it and what is behind the quote.
fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((text, &quoted[at + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => text.push('\n'),
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
    None
}

fn attributes(labels: &[(&str, String)]) -> Vec<KeyValue> {
    let all = labels.iter().filter(|(label, _)| *label != "le");
    all.map(|(label, value)| text(label, value.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP rebate_a_bytes_total Bytes.
# TYPE rebate_a_bytes_total counter
rebate_a_bytes_total{x=\"q\\\"\\\\\\n,}\",y=\"z\"} 12
rebate_a_bytes_total{x=\"\"} 3
# HELP rebate_g Now.
# TYPE rebate_g gauge
rebate_g 1.5
# HELP rebate_t_seconds Times.
# TYPE rebate_t_seconds histogram
rebate_t_seconds_bucket{c=\"get\",le=\"0.5\"} 2
rebate_t_seconds_bucket{c=\"get\",le=\"+Inf\"} 5
rebate_t_seconds_sum{c=\"get\"} 7.25
rebate_t_seconds_count{c=\"get\"} 5
rebate_t_seconds_bucket{c=\"set\",le=\"0.5\"} 1
rebate_t_seconds_bucket{c=\"set\",le=\"+Inf\"} 1
rebate_t_seconds_sum{c=\"set\"} 0.25
rebate_t_seconds_count{c=\"set\"} 1
";

    #[test]
    fn a_page_keeps_its_names_labels_and_numbers() {
        let metrics = metrics(PAGE, Times { began: 1, now: 2 });
        let names: Vec<_> =
            metrics.iter().map(|metric| (metric.name.as_str(), metric.unit.as_str())).collect();
        assert_eq!(
            names,
            [("rebate_a_bytes_total", "By"), ("rebate_g", ""), ("rebate_t_seconds", "s")]
        );
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("no sum") };
        assert!(sum.is_monotonic);
        assert_eq!(sum.data_points[0].attributes, [text("x", "q\"\\\n,}"), text("y", "z")]);
        assert_eq!(sum.data_points[0].value, Some(Value::AsDouble(12.0)));
        assert_eq!(sum.data_points.len(), 2);
        let Some(Data::Gauge(gauge)) = &metrics[1].data else { panic!("no gauge") };
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(1.5)));
        let Some(Data::Histogram(histogram)) = &metrics[2].data else { panic!("no histogram") };
        let [get, set] = &*histogram.data_points else { panic!("not two distributions") };
        assert_eq!((get.count, get.sum), (5, Some(7.25)));
        assert_eq!((&*get.bucket_counts, &*get.explicit_bounds), (&[2, 3][..], &[0.5][..]));
        assert_eq!(set.attributes, [text("c", "set")]);
        assert_eq!((&*set.bucket_counts, set.count), (&[1, 0][..], 1));
        assert_eq!(metrics.iter().map(points).sum::<usize>(), 5);
    }

    #[test]
    fn lines_that_are_no_samples_are_left_out() {
        for line in ["", "a", "a{b=\"c\"", "a{b=\"c} 1", "a x", "# EOF"] {
            assert!(Sample::read(line).is_none(), "{line}");
        }
    }
}
