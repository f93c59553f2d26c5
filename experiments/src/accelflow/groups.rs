//! The groups in which predictions are counted, and the published number that each row predicts.

use sim::accelflow::SCENARIOS;

use crate::base::rows::Row;

/// Returns the groups of a row: the figure or section to which it belongs with its scenario, and all rows of the
/// scenario.
pub(super) fn groups(row: &Row) -> Vec<String> {
    let parts: Vec<&str> = row.id.split('.').collect();
    let all = scenario(&parts).map(|scenario| format!("all, {scenario}"));
    [place(&row.id)].into_iter().chain(all).collect()
}

/// Returns the name of the published number that a row predicts. The same bar may stand in several figures, and the
/// scenarios and readings of an input all predict the same numbers. It is none for a row that only restates numbers of
/// other rows: the orders by pair, the margins, and figure 12's cuts.
pub(super) fn number(row: &Row) -> Option<String> {
    let all: Vec<&str> = row.id.split('.').collect();
    let parts: Vec<&str> = all.into_iter().filter(|part| !SCENARIOS.contains(part)).collect();
    let restates = ["pair", "p99_margin", "accelflow_best", "order_as_published"];
    match parts.as_slice() {
        [what, ..] if restates.contains(what) => None,
        ["p99_reduction", .., load] if load.starts_with("load_") => None,
        ["order", reading, ..] if reading.starts_with("relief_apps") => None,
        ["throughput_ratio", reading, rest @ ..] if reading.starts_with("relief_apps") => {
            let application = rest.first().filter(|part| !part.starts_with("entries_hold"));
            Some(format!("figure_15.{}", application.unwrap_or(&"mean")))
        }
        // Figures 18 and 19 show the base design of figure 11 again.
        ["p99", "accelflow", "chiplets_2" | "pes_8", rest @ ..] => {
            Some([&["p99", "accelflow"], rest].concat().join("."))
        }
        ["ablation_reduction", "accelflow"] => Some("p99_reduction.relief".to_owned()),
        parts => Some(parts.join(".")),
    }
}

/// Returns the scenario that an id names.
fn scenario(parts: &[&str]) -> Option<&'static str> {
    SCENARIOS.into_iter().find(|scenario| parts.contains(scenario))
}

/// Returns the figure or section to which a row belongs, and its scenario.
fn place(id: &str) -> String {
    let parts: Vec<&str> = id.split('.').collect();
    let has = |start: &str| parts.iter().any(|part| part.starts_with(start));
    let figure = match parts[0] {
        "p99" | "p99_growth" | "mean" if has("chiplets") => "figure 18",
        "p99" | "p99_growth" | "mean" | "deadline_misses" | "encrypt_fallback_share"
            if has("pes_") =>
        {
            "figure 19"
        }
        "p99" | "p99_reduction" if has("load_") => "figure 12",
        "p99" if ["per_type_queues", "direct", "control_flow"].iter().any(|step| has(step)) => {
            "figure 13"
        }
        "p99" => "figure 11, P99",
        "mean" => "figure 11, mean",
        "p99_reduction" | "mean_reduction" => "figure 11, reductions",
        "ablation_reduction" => "figure 13",
        "order" | "pair" | "p99_margin" | "accelflow_best" | "order_as_published" => {
            "figure 11, order"
        }
        "max_throughput" | "max_throughput_ratio" if !has("relief_apps") => "figure 14",
        "mean_throughput" | "mean_throughput_ratio" => "figure 14",
        "throughput_ratio" | "max_throughput" | "max_throughput_ratio" => "figure 15",
        "throughput_loss" => "figure 19",
        "overhead" if has("unloaded") => "figure 17",
        "overhead" => "figure 3",
        "utilisation" => "section VII-B4",
        _ => "others",
    };
    match scenario(&parts) {
        Some(scenario) => format!("{figure}, {scenario}"),
        None => figure.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rows::Kind;

    fn row(id: &str) -> Row {
        Row::modelled(id, "", (Some(1.0), Some(1.0)), "ms", Kind::Predicted)
    }

    #[test]
    fn rows_belong_to_their_figures() {
        for (id, figure) in [
            ("p99.steady.relief.login", "figure 11, P99, steady"),
            ("p99.window.per_type_queues.login", "figure 13, window"),
            ("p99.production.accelflow", "figure 11, P99, production"),
            ("p99.steady.accelflow.chiplets_6.cycles_20", "figure 18, steady"),
            ("mean_reduction.window.cohort", "figure 11, reductions, window"),
            ("max_throughput_ratio.steady.relief", "figure 14, steady"),
            ("throughput_ratio.relief_apps.gru", "figure 15"),
            ("overhead.cpu_centric.load_20000", "figure 3"),
            ("overhead.relief.unloaded", "figure 17"),
        ] {
            assert_eq!(place(id), figure, "{id}");
        }
    }

    #[test]
    fn a_row_counts_in_its_figure_and_in_its_scenario() {
        let found = groups(&row("p99.steady.relief.login"));
        assert_eq!(found, ["figure 11, P99, steady", "all, steady"]);
        assert_eq!(groups(&row("throughput_ratio.relief_apps.gru")), ["figure 15"]);
    }

    #[test]
    fn rows_that_predict_one_published_number_name_it_alike() {
        for (id, published) in [
            ("p99.steady.accelflow.login", "p99.accelflow.login"),
            ("p99.window.accelflow.chiplets_2.login", "p99.accelflow.login"),
            ("p99.window.accelflow.pes_8", "p99.accelflow"),
            ("p99.window.accelflow.pes_4", "p99.accelflow.pes_4"),
            ("ablation_reduction.production.accelflow", "p99_reduction.relief"),
            ("ablation_reduction.production.direct", "ablation_reduction.direct"),
            ("throughput_ratio.relief_apps.gru.entries_hold_payload", "figure_15.gru"),
            ("throughput_ratio.relief_apps_objective.gru", "figure_15.gru"),
            ("throughput_ratio.relief_apps.entries_hold_payload", "figure_15.mean"),
            ("order.steady.login", "order.login"),
        ] {
            assert_eq!(number(&row(id)).as_deref(), Some(published), "{id}");
        }
        for id in [
            "pair.steady.accelflow.relief",
            "p99_margin.window.login",
            "order.relief_apps_objective",
            "p99_reduction.steady.relief.load_5000",
        ] {
            assert_eq!(number(&row(id)), None, "{id}");
        }
    }
}
