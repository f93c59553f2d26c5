//! The printed numbers that other printed numbers contradict. In each row `published` is a number of \[AccelFlow\], and
//! `ours` is the value that other numbers of the paper give for it. The rows are computed from the committed
//! specification and from the bars of the figures. Nothing is simulated.

use sim::Entries;

use super::published::{Figure, Published};
use super::runner::number;
use crate::base::rows::{Kind, Row};

/// The specification, which contains figure 1, and the names of the services.
struct Inputs<'a> {
    base: &'a Entries,
    names: Vec<String>,
}

/// Returns the rows of all contradictions.
pub(super) fn rows(base: &Entries, published: &Published) -> Vec<Row> {
    let names = trace::accelflow().services().iter().map(|service| service.name.clone()).collect();
    let inputs = Inputs { base, names };
    let mut rows = means(published);
    rows.extend(inputs.load());
    rows.extend(inputs.ceiling());
    rows.extend(inputs.figure_1());
    rows.extend(inputs.objective(published));
    rows.extend(figures(published));
    rows
}

impl Inputs<'_> {
    fn key(&self, key: &str) -> f64 {
        number(self.base, key).unwrap_or(f64::NAN)
    }

    fn service(&self, name: &str, what: &str) -> f64 {
        self.key(&format!("services.{name}.{what}"))
    }

    fn each(&self, number: impl Fn(&str) -> f64) -> Vec<f64> {
        self.names.iter().map(|name| number(name)).collect()
    }

    /// Returns a category's share of the time that all services take together.
    fn weighted(&self, category: &str) -> f64 {
        let time = |name: &str| self.service(name, "time_us");
        let part: f64 = self.each(|name| time(name) * self.service(name, category)).iter().sum();
        part / self.each(time).iter().sum::<f64>()
    }

    /// Returns the numbers of busy cores and busy managers that 13.4 K requests/s for each service (section VI) would
    /// need. Table III gives the number of cores. A manager takes 1.5 us for each completion (section VII-A1).
    fn load(&self) -> [Row; 2] {
        let per_s = self.key("load.total_per_s");
        let busy =
            per_s * 1e-6 * self.each(|name| self.service(name, "time_us")).iter().sum::<f64>();
        let catalog = trace::accelflow();
        let services = catalog.services().iter();
        let ops: u64 = services.map(|service| catalog.invocations(service)).sum();
        let manager = per_s * 1e-9 * ops as f64 * self.key("costs.manager_ns");
        [
            row(
                "contradiction.load_per_service.cores",
                "busy cores without accelerators, were 13.4 K for each service; table III has",
                (self.key("hardware.cores"), busy),
                "1",
            ),
            row(
                "contradiction.load_per_service.manager",
                "RELIEF's managers of 1.5 us that 13.4 K for each service keep busy; there is",
                (1.0, manager),
                "1",
            ),
        ]
    }

    /// Returns the highest throughput of eight TCP PEs (table III), from TCP's share of the time in figure 1. Section
    /// VII-A3 prints a throughput of 8.3 times that of Non-acc.
    fn ceiling(&self) -> [Row; 2] {
        let most = self.key("hardware.pes") * self.key("accelerators.tcp.speedup")
            / self.weighted("tcp")
            / self.key("hardware.cores");
        let what = "throughput over Non-acc: at most, with TCP's PEs always busy and cores as well";
        [
            row("contradiction.throughput_ceiling", what, (8.3, most), "times"),
            row(
                "contradiction.throughput_ceiling.occupancy",
                &format!("{what}; with figure 17's occupancy"),
                (8.3, most / self.key("costs.occupancy")),
                "times",
            ),
        ]
    }

    /// Returns the averages of figure 1's bars. Section III prints other averages.
    fn figure_1(&self) -> Vec<Row> {
        let printed = [("tcp", 25.6), ("app", 20.7)];
        let row = |(category, printed): (&str, f64)| {
            let plain = 100.0 * sim::mean(&self.each(|name| self.service(name, category)));
            let what = "figure 1's printed average beside that of its eight bars";
            let id = |how: &str| format!("contradiction.figure_1.{category}.{how}");
            let weighted = 100.0 * self.weighted(category);
            [
                row(&id("plain"), what, (printed, plain), "%"),
                row(&id("by_time"), &format!("{what}, by their time"), (printed, weighted), "%"),
            ]
        };
        printed.into_iter().flat_map(row).collect()
    }

    /// Returns the contradictions between figures 11 and 14. Section VII-A3 states the objective of figure 14.
    fn objective(&self, published: &Published) -> Vec<Row> {
        let factor = self.key("work.slo_factor");
        let times = |name: &str, column: &str| {
            let bar = published.p99_ms.bar(name, column).unwrap_or(f64::NAN);
            bar * 1e3 / self.service(name, "time_us")
        };
        let mut rows = vec![
            row(
                "contradiction.uniqid.p99",
                "UniqId under AccelFlow: figure 11's P99 over figure 1's time, and figure 14's objective",
                (factor, times("UniqId", "accelflow")),
                "times",
            ),
            row(
                "contradiction.uniqid.mean",
                "UniqId under AccelFlow: figure 11's P99, and its own mean above it",
                (bar(&published.p99_ms, "accelflow"), bar(&published.mean_ms, "accelflow")),
                "ms",
            ),
        ];
        let per_s = 1e-3 * self.key("load.total_per_s");
        for column in &published.p99_ms.columns {
            let at_most = |name: &str| published.throughput_krps.bar(name, column);
            let over = |name: &&String| {
                at_most(name).is_some_and(|most| most > per_s) && times(name, column) > factor
            };
            let count = self.names.iter().filter(over).count();
            let id = format!("contradiction.figures_11_14.{}", column.replace('-', "_"));
            let what = "services beyond 5 times their time at 13.4 K in figure 11, within it at more in figure 14";
            rows.push(row(&id, what, (0.0, count as f64), "1"));
        }
        rows
    }
}

/// Returns the rows of the reductions of the mean latency. Section VII-A1 prints them as numbers, and figure
/// 11 draws them as stars.
fn means(published: &Published) -> Vec<Row> {
    let cuts = [("non-acc", 77.2), ("cpu-centric", 53.9), ("relief", 40.7), ("cohort", 37.9)];
    let row = |(other, cut): (&str, f64)| {
        let stars = published.mean_ms.cut("mean", "accelflow", other).unwrap_or(f64::NAN);
        let id = format!("contradiction.mean_reduction.{}", other.replace('-', "_"));
        row(
            &id,
            "section VII-A1's cut of the mean, and that of figure 11's stars",
            (cut, stars),
            "%",
        )
    };
    cuts.into_iter().map(row).collect()
}

/// Returns the contradictions of figures 16, 18 and 20 with other printed numbers.
fn figures(published: &Published) -> Vec<Row> {
    let mut rows = Vec::new();
    for column in ["non-acc", "relief", "accelflow"] {
        let figure_11 = published.p99_ms.bar("mean", column).unwrap_or(f64::NAN);
        let figure_20 = published.generations_ms.bar(column, "ice-lake").unwrap_or(f64::NAN);
        let id = format!("contradiction.ice_lake.{}", column.replace('-', "_"));
        let what = "figure 11's mean P99, and figure 20's of the same processor and set-up";
        rows.push(row(&id, what, (figure_11, figure_20), "ms"));
    }
    let chiplets = |column| published.chiplets_ms.bar("mean", column).unwrap_or(f64::NAN);
    rows.extend([
        row(
            "contradiction.chiplet_hops",
            "figure 18, two to six chiplets; and 87 ops with two hops of 60 cycles each",
            (chiplets("6") - chiplets("2"), 87.0 * 2.0 * 60.0 / 2.4e6),
            "ms",
        ),
        row(
            "contradiction.serverless",
            "section VII-A5's cut over RELIEF, and that of figure 16's mean bars",
            (37.0, 100.0 * (1.0 - 17.8 / 27.3)),
            "%",
        ),
    ]);
    rows
}

fn bar(figure: &Figure, column: &str) -> f64 {
    figure.bar("UniqId", column).unwrap_or(f64::NAN)
}

fn row(id: &str, what: &str, (published, ours): (f64, f64), unit: &'static str) -> Row {
    Row::modelled(id, what, (Some(published), Some(ours)), unit, Kind::Computed)
}

#[cfg(test)]
mod tests {
    use super::super::published::published;
    use super::super::runner::base;
    use super::*;

    #[test]
    fn contradictions_have_the_expected_numbers() {
        let base = base("steady").unwrap_or_else(|_| panic!("compiled in"));
        let rows = rows(&base, &published());
        let expected = [
            ("mean_reduction.non_acc", 76.0, 0.1),
            ("mean_reduction.cohort", 36.4, 0.1),
            ("load_per_service.cores", 115.5, 0.1),
            ("load_per_service.manager", 4.92, 0.01),
            ("throughput_ceiling", 3.3, 0.05),
            ("throughput_ceiling.occupancy", 1.6, 0.05),
            ("figure_1.app.plain", 17.2, 0.1),
            ("figure_1.app.by_time", 22.7, 0.1),
            ("figure_1.tcp.plain", 28.5, 0.1),
            ("figure_1.tcp.by_time", 23.6, 0.1),
            ("uniqid.p99", 21.6, 0.01),
            ("uniqid.mean", 0.441, 1e-9),
            ("figures_11_14.accelflow", 3.0, 0.0),
            ("chiplet_hops", 0.00435, 1e-9),
            ("serverless", 34.8, 0.05),
        ];
        for (id, ours, off) in expected {
            let id = format!("contradiction.{id}");
            let row = rows.iter().find(|row| row.id == id).unwrap_or_else(|| panic!("{id}"));
            assert!((row.ours.expect("computed") - ours).abs() <= off, "{id}: {:?}", row.ours);
        }
        assert!(rows.iter().all(|row| row.ours.is_some_and(f64::is_finite)));
    }
}
