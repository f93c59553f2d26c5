//! Figures 11 and 12: speedups, throughputs, and the shares of the engine's cycles.

use sim::arcalis::Attachment;

use super::runner::{Case, MEMC, POST, Runner, WORKLOADS};
use crate::base::Problem;
use crate::base::rows::{Kind, Row};

/// The speedups of figure 11a, in the order of the workloads.
pub(super) const SPEEDUPS: [f64; 7] = [4.16, 3.68, 3.05, 2.58, 2.21, 1.79, 3.33];
/// For each of the [`WORKLOADS`], true if its numbers are fitted, and false if they follow from two fitted mixes.
const FITTED: [bool; 7] = [true, false, true, true, false, true, true];

/// Adds the rows of figure 11a and of its order.
pub(super) fn speedups(runner: &Runner, rows: &mut Vec<Row>) -> Result<(), Problem> {
    for ((workload, published), fitted) in WORKLOADS.into_iter().zip(SPEEDUPS).zip(FITTED) {
        let ours = runner.speedup(&Case::new(workload))?;
        let (id, what) = (format!("speedup.{workload}"), "figure 11a: over one core");
        let pair = (Some(published), Some(ours));
        let row = Row::modelled(&id, what, pair, "times", Kind::Calibrated);
        rows.push(if fitted { row } else { row.because(ENDS) });
    }
    for (service, workloads) in [("memc", MEMC), ("post", POST)] {
        let all = workloads.map(|workload| runner.speedup(&Case::new(workload)));
        let what = "figure 11a: the more writes, the less";
        let order = ordered(&format!("order.speedup.{service}"), what, all, |few, many| few > many);
        rows.push(order?.by(Kind::Calibrated).because(ENDS));
    }
    Ok(())
}

/// Adds the rows of figure 11b.
pub(super) fn throughputs(runner: &Runner, rows: &mut Vec<Row>) -> Result<(), Problem> {
    let published = [Some(248.0), Some(202.0), Some(258.0), Some(128.0), None, Some(74.0), None];
    for (workload, published) in WORKLOADS.into_iter().zip(published) {
        let ours = runner.per_s(&Case::new(workload))? * 1e-3;
        let (id, pair) = (format!("throughput.{workload}"), (published, Some(ours)));
        let row = Row::modelled(&id, "figure 11b: Arcalis", pair, "k/s", Kind::Calibrated);
        rows.push(match workload {
            "memc_mid" => row.because(NO_MIX),
            "post_low" | "post_high" => row.because(
                "74 to 128 k/s are printed without names; read as the order of the speedups",
            ),
            _ => row,
        });
    }
    let posts = POST.map(|workload| runner.per_s(&Case::new(workload)));
    let what = "VI-A: throughput follows the speedups";
    let order = ordered("order.throughput.post", what, posts, |few, many| few > many)?;
    rows.push(order.by(Kind::Calibrated).because(ENDS));
    let printed = ["memc_mid", "memc_low", "memc_high"].map(|name| runner.per_s(&Case::new(name)));
    let what = "figure 11b: 202, 248 and 258 k/s for half, 20 and 80 % SET";
    let order = ordered("order.throughput.memc", what, printed, |less, more| less < more)?;
    rows.push(order.by(Kind::Calibrated).because(NO_MIX));
    let cpu = WORKLOADS.map(|workload| runner.per_s(&Case::new(workload).at(Attachment::Cpu)));
    let (least, most) = ends(cpu)?;
    let what = "figure 11b: the CPU's least; only unique_id can be it";
    let pair = (Some(25.0), Some(least * 1e-3));
    rows.push(Row::modelled("cpu_throughput.least", what, pair, "k/s", Kind::Calibrated));
    let pair = (Some(84.0), Some(most * 1e-3));
    let what = "figure 11b: the CPU's most: memc_high's throughput over its speedup, both fitted";
    rows.push(Row::modelled("cpu_throughput.most", what, pair, "k/s", Kind::Calibrated));
    let (least, most) = ends(WORKLOADS.map(|workload| runner.speedup(&Case::new(workload))))?;
    for (id, published, ours) in
        [("throughput_gain.least", 2.5, least), ("throughput_gain.most", 3.3, most)]
    {
        let pair = (Some(published), Some(ours));
        let what = "VI-A: over the CPU's throughput: the fitted speedups' ends";
        let row = Row::modelled(id, what, pair, "times", Kind::Calibrated);
        rows.push(row.because("figure 11a's speedups are 1.79 to 4.16: both cannot be met"));
    }
    Ok(())
}

/// Adds the rows of figure 12.
pub(super) fn shares(runner: &Runner, rows: &mut Vec<Row>) -> Result<(), Problem> {
    for (name, fact, published) in
        [("rx", "rx.share", [73.0, 91.0]), ("deserialize", "deserialize.share", [59.0, 74.0])]
    {
        let share = |workload: &str| Ok(100.0 * runner.fact(&Case::new(workload), fact)?);
        let (least, most) = ends(WORKLOADS.map(share))?;
        for (end, published, ours) in [("least", published[0], least), ("most", published[1], most)]
        {
            let id = format!("{name}_share.{end}");
            let what = "figure 12: of the engine's cycles, over the workloads";
            let pair = (Some(published), Some(ours));
            rows.push(Row::modelled(&id, what, pair, "%", Kind::Calibrated));
        }
        for workload in WORKLOADS {
            let ours = share(workload)?;
            let fitted = ours == least || ours == most;
            let kind = if fitted { Kind::Calibrated } else { Kind::Predicted };
            let (id, what) =
                (format!("{name}_share.{workload}"), "figure 12: its bar is not printed");
            rows.push(Row::modelled(&id, what, (None, Some(ours)), "%", kind));
        }
    }
    let shares = WORKLOADS.map(|workload| runner.fact(&Case::new(workload), "deserialize.share"));
    let (least, _) = ends(shares)?;
    let what = "VI-B: deserialization dominates, in every workload";
    let order =
        ordered("order.deserialize", what, [Ok(0.5), Ok(least)], |half, share| half < share)?;
    rows.push(order.by(Kind::Calibrated).because("the least share is fitted, to 59 %"));
    for (service, workloads) in [("memc", MEMC), ("post", POST)] {
        // The numbers at both ends of Post are fitted, because they are the ends over all workloads.
        let marked = |row: Row| match service {
            "post" => row.by(Kind::Calibrated).because(ENDS),
            _ => row,
        };
        let all = workloads.map(|workload| runner.fact(&Case::new(workload), "deserialize.share"));
        let (id, what) =
            (format!("order.deserialize_share.{service}"), "VI-B: writes have more of it");
        rows.push(marked(ordered(&id, what, all, |few, many| few < many)?));
        let all = workloads.map(|workload| runner.fact(&Case::new(workload), "rx.share"));
        let id = format!("order.rx_share.{service}");
        let what = "figure 12: the more writes, the larger Rx's share";
        let order = marked(ordered(&id, what, all, |few, many| few < many)?);
        rows.push(match service {
            "memc" => order.by(Kind::Calibrated).because(BYTES_IN),
            _ => order,
        });
    }
    Ok(())
}

/// Returns a row that is 1 if the values are ordered as published, and 0 otherwise. Its kind is predicted.
/// The caller changes the kind if the order follows from fitted numbers.
pub(super) fn ordered<const N: usize>(
    id: &str,
    what: &str,
    values: [Result<f64, Problem>; N],
    as_published: fn(&f64, &f64) -> bool,
) -> Result<Row, Problem> {
    let values = values.into_iter().collect::<Result<Vec<f64>, Problem>>()?;
    let holds = values.windows(2).all(|pair| as_published(&pair[0], &pair[1]));
    let pair = (Some(1.0), Some(f64::from(u8::from(holds))));
    Ok(Row::modelled(id, what, pair, "1", Kind::Predicted))
}

/// Returns the smallest and the largest value.
pub(super) fn ends<const N: usize>(
    values: [Result<f64, Problem>; N],
) -> Result<(f64, f64), Problem> {
    let values = values.into_iter().collect::<Result<Vec<f64>, Problem>>()?;
    let ends = (f64::INFINITY, f64::NEG_INFINITY);
    Ok(values.into_iter().fold(ends, |(least, most), value| (least.min(value), most.max(value))))
}

pub(super) const ENDS: &str = "follows from two fitted ends and a mix between them";
/// The reason why the order of Rx's shares of memcached is no prediction.
const BYTES_IN: &str =
    "follows from any cost of a byte: a SET brings its value in, and a GET takes it out";
const NO_MIX: &str =
    "half SET, half GET lies between the mixes of 20 and 80 %, 248 and 258 k/s, whatever they cost";
