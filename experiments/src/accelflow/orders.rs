//! The order of the architectures by P99, for each service and for each pair, compared with the published order. Two
//! architectures count as different only if the interval of their paired difference excludes zero.

use sim::accelflow::Architecture;
use sim::{Interval, Report};

use super::published::Figure;
use super::runner::{exact, scaled, unavailable_reason};
use super::scenario::ScenarioReports;
use crate::base::rows::Kind;

/// The architectures in ascending order of their mean P99 in figure 11.
pub(super) const SORTED: [&str; 5] = ["accelflow", "relief", "cohort", "cpu-centric", "non-acc"];
/// The text in a row's reason between the order that Rebate obtained and the published order.
pub(super) const BESIDE: &str = "; published: ";

/// The difference between the P99s of a service under two architectures.
#[derive(Clone, Copy, Debug, PartialEq)]
struct P99Gap {
    /// The second P99 minus the first (ns).
    by: Interval,
}

impl P99Gap {
    fn is_below(self) -> bool {
        self.by.value > 0.0
    }

    fn is_surely_below(self) -> bool {
        self.by.ci95[0] > 0.0
    }

    fn is_surely_above(self) -> bool {
        self.by.ci95[1] < 0.0
    }
}

/// Counts of comparisons of two P99s: all, those in the published direction (`same`), and those whose whole
/// interval is in this direction (`surely`) or in the opposite direction (`reversed`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tally {
    all: u32,
    same: u32,
    surely: u32,
    reversed: u32,
}

impl Tally {
    fn add(&mut self, gap: P99Gap) {
        self.all += 1;
        self.same += u32::from(gap.is_below());
        self.surely += u32::from(gap.is_surely_below());
        self.reversed += u32::from(gap.is_surely_above());
    }

    /// Returns the number of comparisons in the published direction. Its interval extends from the number of
    /// certain comparisons to the number of possible ones.
    fn interval(self) -> Interval {
        let most = self.all - self.reversed;
        Interval { value: self.same.into(), ci95: [self.surely.into(), most.into()] }
    }
}

impl ScenarioReports<'_> {
    /// Adds the orders of the five architectures of figure 11, for every service and for every pair.
    pub(super) fn orders(&self) {
        let reports = || Architecture::COMPARED.iter().filter_map(|name| self.report(*name));
        let reason = reports().find_map(unavailable_reason);
        let services: Vec<String> = match self.report(Architecture::AccelFlow) {
            Some(report) => report.responses.iter().map(|response| response.name.clone()).collect(),
            None => return,
        };
        let known =
            reports().all(|report| report.across().is_some_and(|across| across.p99_ns.is_some()));
        let all = Some(services.len() as f64);
        let (mut best, mut whole) = (Tally::default(), 0.0);
        for service in &services {
            self.margin(service, &mut best, reason.clone());
            whole += f64::from(u8::from(self.order(service, reason.clone())));
        }
        let scenario = self.scenario;
        let what = "services in which AccelFlow's P99 is lowest beyond its interval";
        let sure = known.then(|| exact(best.surely.into()));
        let id = format!("accelflow_best.{scenario}");
        self.runner.add(&id, what, "1", Kind::Predicted, (sure, all), reason.clone());
        let what = "services in which the order of the five P99s is the published one";
        let whole = known.then(|| exact(whole));
        let id = format!("order_as_published.{scenario}");
        self.runner.add(&id, what, "1", Kind::Predicted, (whole, all), reason.clone());
        self.pairs(&services, known, reason);
    }

    fn gap(&self, lower: Architecture, higher: Architecture, service: &str) -> Option<P99Gap> {
        let by = self.report(higher)?.difference(self.report(lower)?, service)?.p99_ns?;
        Some(P99Gap { by })
    }

    /// Adds the difference between the lowest P99 of the other architectures and AccelFlow's P99.
    fn margin(&self, service: &str, best: &mut Tally, reason: Option<String>) {
        let ours = Architecture::AccelFlow;
        let others = || Architecture::COMPARED.into_iter().filter(move |other| *other != ours);
        let next = others()
            .filter_map(|other| Some((other, self.gap(ours, other, service)?)))
            .min_by(|a, b| a.1.by.value.total_cmp(&b.1.by.value));
        let sure = others()
            .all(|other| self.gap(ours, other, service).is_some_and(P99Gap::is_surely_below));
        best.surely += u32::from(sure);
        let figure = &self.runner.published.p99_ms;
        let published = order(figure, &|name| figure.bar(service, name)).and_then(|order| {
            let bars = [figure.bar(service, order[1])?, figure.bar(service, order[0])?];
            (order[0] == ours.name()).then(|| bars[0] - bars[1])
        });
        let comment = next.map(|(other, gap)| {
            let (name, sure) = (other.name(), if sure { "lowest" } else { "not lowest" });
            let by = if gap.is_below() { "the next is" } else { "below it is" };
            format!("{sure} beyond its interval; {by} {name}")
        });
        let margin = next.map(|(_, gap)| scaled(gap.by, 1e-6));
        let id = format!("p99_margin.{}.{}", self.scenario, service.to_lowercase());
        let what = "by how much AccelFlow's P99 is below the lowest of the others";
        let pair = (margin, published);
        self.runner.add(&id, what, "ms", Kind::Predicted, pair, reason.or(comment));
    }

    /// Adds the order of a service's P99s. Returns whether it is the published order.
    fn order(&self, service: &str, reason: Option<String>) -> bool {
        let figure = &self.runner.published.p99_ms;
        let p99 = |report: &Report| Some(report.response(service)?.p99_ns?.value);
        let ours = |name: &str| p99(self.report(Architecture::from_name(name)?)?);
        let (theirs, ours) = (
            order(figure, &|name| figure.bar(service, name)).unwrap_or_default(),
            order(figure, &ours),
        );
        let mut tally = Tally::default();
        let sorted: Vec<Architecture> =
            theirs.iter().filter_map(|name| Architecture::from_name(name)).collect();
        for (index, lower) in sorted.iter().enumerate() {
            for higher in &sorted[index + 1..] {
                if let Some(gap) = self.gap(*lower, *higher, service) {
                    tally.add(gap);
                }
            }
        }
        let pairs = sorted.len() * sorted.len().saturating_sub(1) / 2;
        let count = (ours.is_some() && tally.all as usize == pairs).then(|| tally.interval());
        let comment = ours
            .as_ref()
            .map(|ours| format!("{}{BESIDE}{}", self.chain(ours, service), theirs.join(" < ")));
        let id = format!("order.{}.{}", self.scenario, service.to_lowercase());
        let what = "of ten pairs of architectures, those whose P99s are ordered as published";
        let pair = (count, Some(pairs as f64));
        self.runner.add(&id, what, "1", Kind::Predicted, pair, reason.or(comment));
        ours.is_some_and(|ours| ours == theirs)
    }

    /// Returns the order as text. It has `a < b` if the interval of the difference excludes zero, and `a = b` if it
    /// does not.
    fn chain(&self, order: &[&str], service: &str) -> String {
        let mut text = String::new();
        for (index, name) in order.iter().enumerate() {
            if index > 0 {
                let two = [order[index - 1], name].map(Architecture::from_name);
                let gap = match two {
                    [Some(lower), Some(higher)] => self.gap(lower, higher, service),
                    _ => None,
                };
                let sure = gap.is_some_and(P99Gap::is_surely_below);
                text += if sure { " < " } else { " = " };
            }
            text += name;
        }
        text
    }

    /// Adds, for every pair of architectures, the number of services that order them as in figure 11.
    fn pairs(&self, services: &[String], known: bool, reason: Option<String>) {
        let figure = &self.runner.published.p99_ms;
        for (index, a) in SORTED.iter().enumerate() {
            for b in &SORTED[index + 1..] {
                let mut tally = Tally::default();
                for service in services {
                    let a_is_lower = figure.bar(service, a) < figure.bar(service, b);
                    let two = if a_is_lower { [a, b] } else { [b, a] };
                    let two = two.map(|name| Architecture::from_name(name));
                    if let [Some(lower), Some(higher)] = two
                        && let Some(gap) = self.gap(lower, higher, service)
                    {
                        tally.add(gap);
                    }
                }
                let id = format!("pair.{}.{a}.{b}", self.scenario).replace('-', "_");
                let what = format!("services in which {a} and {b} are ordered as in figure 11");
                let all = Some(services.len() as f64);
                let pair = (known.then(|| tally.interval()), all);
                self.runner.add(&id, &what, "1", Kind::Predicted, pair, reason.clone());
            }
        }
    }
}

/// Returns the columns sorted by their numbers, lowest first.
fn order<'a>(figure: &'a Figure, number: &dyn Fn(&str) -> Option<f64>) -> Option<Vec<&'a str>> {
    let columns = figure.columns.iter().map(|column| Some((column.as_str(), number(column)?)));
    let mut columns = columns.collect::<Option<Vec<_>>>()?;
    columns.sort_by(|a, b| a.1.total_cmp(&b.1));
    Some(columns.into_iter().map(|(name, _)| name).collect())
}

#[cfg(test)]
mod tests {
    use super::super::published::published;
    use super::*;

    #[test]
    fn a_tally_counts_sure_and_unsure_comparisons() {
        let mut tally = Tally::default();
        for ci95 in [[1.0, 3.0], [-1.0, 3.0], [-3.0, -1.0]] {
            let value = f64::midpoint(ci95[0], ci95[1]);
            tally.add(P99Gap { by: Interval { value, ci95 } });
        }
        assert_eq!(tally.interval(), Interval { value: 2.0, ci95: [1.0, 2.0] });
    }

    #[test]
    fn the_published_order_follows_the_bars() {
        let figure = published().p99_ms;
        let ordered = |service: &'static str| order(&figure, &|name| figure.bar(service, name));
        let mean = ordered("mean").expect("all bars");
        assert_eq!(mean, SORTED);
        assert_eq!(ordered("Follow").expect("all bars")[1], "cohort");
        assert_eq!(ordered("nobody"), None);
    }
}
