//! The TOML form of queries. Keys at the top apply to every `[[case]]` that does not override them. Errors name the
//! case, the key and its valid values.

use std::path::Path;

use model::{BadParameter, Design, Provenance, Quantity, Queueing, Strategy, Symbol, Variant};
use toml::{Table, Value};

use crate::query::{Parameter, Published, Query, Sizes, counted, objective};
use crate::sizes::{self, Entry};

/// Reads the queries of a file. Paths in the file are relative to `folder`. Without a folder, paths are refused.
///
/// # Errors
/// The text names the problem and its place.
pub(crate) fn read(text: &str, folder: Option<&Path>) -> Result<Vec<Query>, String> {
    let mut top: Table = toml::from_str(text).map_err(|error| error.to_string())?;
    let cases = match top.remove("case") {
        None => vec![Table::new()],
        Some(Value::Array(cases)) if cases.iter().all(Value::is_table) => {
            cases.into_iter().filter_map(|case| case.try_into().ok()).collect()
        }
        Some(other) => return Err(format!("case is {other}; write [[case]]")),
    };
    if cases.is_empty() {
        return Err("there is no [[case]]".to_owned());
    }
    let single = cases.len() == 1;
    cases
        .into_iter()
        .enumerate()
        .map(|(index, case)| {
            let mut table = top.clone();
            table.remove("about");
            if !single {
                table.remove("name");
            }
            table.extend(case);
            let id = text_of(&table, "id").ok().flatten();
            let id = id.unwrap_or_else(|| (index + 1).to_string());
            query(&table, &id, folder).map_err(|problem| format!("case {id}: {problem}"))
        })
        .collect()
}

fn query(table: &Table, id: &str, folder: Option<&Path>) -> Result<Query, String> {
    let known =
        |key: &str| WORDS.contains(&key) || Symbol::ALL.iter().any(|symbol| symbol.name() == key);
    if let Some(key) = table.keys().find(|key| !known(key)) {
        let symbols = Symbol::ALL.map(Symbol::name).join(", ");
        return Err(format!("unknown key {key:?}; there are {symbols}, {}", WORDS.join(", ")));
    }
    let bad = |error: BadParameter| error.to_string();
    let name = text_of(table, "name")?.unwrap_or_else(|| id.to_owned());
    let mut query = Query::new(id, name, design(table)?);
    query.awaits_transfer =
        table.contains_key("awaits_transfer").then_some(query.design.awaits_transfer);
    if let Some(word) = text_of(table, "counted")? {
        query.counted = counted(&word).map_err(bad)?;
    }
    if let Some(word) = text_of(table, "objective")? {
        query.objective = objective(&word).map_err(bad)?;
    }
    query.beta = table.get("beta").map(|value| number("beta", value)).transpose()?;
    query.clock_ghz = table.get("clock_ghz").map(|value| number("clock_ghz", value)).transpose()?;
    if let Some(op) = text_of(table, "op")? {
        query.op = op;
    }
    query.devices = match table.get("devices") {
        None => Vec::new(),
        Some(value) => value.clone().try_into().map_err(|_| must("devices", value, DEVICES))?,
    };
    let source = text_of(table, "source")?;
    for symbol in Symbol::ALL {
        if let Some(value) = table.get(symbol.name()) {
            let given = given(symbol.name(), value, source.as_deref())?;
            given.quantity.check(symbol).map_err(bad)?;
            query.parameters.insert(symbol, given);
        }
    }
    if let Some(value) = table.get("sizes") {
        put_sizes(&mut query, value, source.as_deref(), folder)?;
    }
    query.published = table.get("published").map(published).transpose()?;
    Ok(query)
}

/// All keys that do not name parameters.
const WORDS: [&str; 16] = [
    "id",
    "name",
    "source",
    "threading",
    "strategy",
    "awaits_transfer",
    "variant",
    "beta",
    "counted",
    "objective",
    "sizes",
    "devices",
    "op",
    "clock_ghz",
    "published",
    "about",
];
const DEVICES: &str = "a list of device profiles, such as [\"iaa\"]";

fn design(table: &Table) -> Result<Design, String> {
    let bad = |error: BadParameter| error.to_string();
    let threading = text_of(table, "threading")?.unwrap_or_default();
    let threading = threading.parse().map_err(bad)?;
    let strategy = text_of(table, "strategy")?;
    let strategy: Strategy = strategy.as_deref().unwrap_or("off-chip").parse().map_err(bad)?;
    let variant = text_of(table, "variant")?;
    let variant: Variant = variant.as_deref().unwrap_or("equations").parse().map_err(bad)?;
    let mut design = Design::new(threading, strategy).with_variant(variant);
    if let Some(value) = table.get("awaits_transfer") {
        let awaits = value.as_bool().ok_or_else(|| must("awaits_transfer", value, "true or false"));
        design.awaits_transfer = awaits?;
    }
    Ok(design)
}

/// Reads a parameter, which is a number or a table. The table has `value` with an optional `interval`, or `range`, or
/// `offloads` for Q. It may also have `provenance` and `source`.
fn given(key: &'static str, value: &Value, source: Option<&str>) -> Result<Parameter, String> {
    let Value::Table(table) = value else {
        let exact = Quantity::exact(number(key, value)?, Provenance::Configured);
        return Ok(Parameter { quantity: exact, source: source.map(str::to_owned) });
    };
    let keys = ["value", "interval", "range", OFFLOADS, "provenance", "source"];
    let keys = keys.into_iter().filter(|name| *name != OFFLOADS || key == Symbol::Q.name());
    let keys: Vec<&str> = keys.collect();
    if let Some(unknown) = table.keys().find(|key| !keys.contains(&key.as_str())) {
        return Err(format!("{key} has an unknown key {unknown:?}; there are {}", keys.join(", ")));
    }
    let provenance = provenance(table)?.unwrap_or(Provenance::Configured);
    let stated = table.get("value").map(|value| number(key, value)).transpose()?;
    let pair = |name: &str| table.get(name).map(|value| pair(key, value)).transpose();
    let queued = table.get(OFFLOADS).map(queued).transpose()?;
    let quantity = match (stated, pair("interval")?, pair("range")?, queued) {
        (Some(value), None, None, None) => Quantity::exact(value, provenance),
        (Some(value), Some((low, high)), None, None) => {
            Quantity::within(low, value, high, provenance)
        }
        (None, None, Some((low, high)), None) => Quantity::range(low, high, provenance),
        (None, None, None, Some(queueing)) => queueing.quantity(provenance),
        _ => return Err(must(key, value, GIVEN)),
    };
    let source = text_of(table, "source")?.or_else(|| source.map(str::to_owned));
    Ok(Parameter { quantity, source })
}

const GIVEN: &str = "a value, a value with an interval, a range, or of Q offloads";

/// The key that gives queueing as a distribution: the cycles for which each offload queued.
const OFFLOADS: &str = "offloads";

fn queued(value: &Value) -> Result<Queueing, String> {
    let list = "a list of the cycles that offloads queued, such as [0, 0, 400]";
    let cycles = value.as_array().ok_or_else(|| must(OFFLOADS, value, list))?;
    let cycles: Result<_, _> = cycles.iter().map(|each| number(OFFLOADS, each)).collect();
    Queueing::from_offloads(cycles?).map_err(|error| error.to_string())
}

fn provenance(table: &Table) -> Result<Option<Provenance>, String> {
    Ok(Some(match text_of(table, "provenance")?.as_deref() {
        None => return Ok(None),
        Some("measured") => Provenance::Measured,
        Some("configured") => Provenance::Configured,
        Some("assumed") => Provenance::Assumed,
        Some(_) => {
            let valid = "measured, configured or assumed";
            return Err(must("provenance", &table["provenance"], valid));
        }
    }))
}

/// Reads the sizes. They are a path, a list, or a table that has a path or a list in `of` and may have `provenance` and
/// `source`.
fn put_sizes(
    query: &mut Query,
    value: &Value,
    source: Option<&str>,
    folder: Option<&Path>,
) -> Result<(), String> {
    let mut stated = (None, None);
    let value = match value {
        Value::Table(table) => {
            let keys = ["of", "provenance", "source"];
            if let Some(unknown) = table.keys().find(|key| !keys.contains(&key.as_str())) {
                let keys = keys.join(", ");
                return Err(format!("sizes has an unknown key {unknown:?}; there are {keys}"));
            }
            stated = (provenance(table)?, text_of(table, "source")?);
            table.get("of").ok_or_else(|| must("sizes", value, SIZES))?
        }
        value => value,
    };
    let read = read_sizes(value, folder, &query.op)?;
    query.notes.extend(read.notes);
    query.sizes = Some(Sizes {
        histogram: read.sizes,
        provenance: stated.0.unwrap_or(read.provenance),
        source: stated.1.or_else(|| source.map(str::to_owned)).or(Some(read.what.to_owned())),
    });
    Ok(())
}

const SIZES: &str = "a file's path, a list of {bytes, calls}, or either as `of` beside a \
                     provenance and a source";

fn read_sizes(value: &Value, folder: Option<&Path>, op: &str) -> Result<sizes::Read, String> {
    let place = |problem: String| format!("sizes: {problem}");
    match (value, folder) {
        (Value::String(path), Some(folder)) => {
            crate::input::sizes_from(&folder.join(path), Some(op))
        }
        (Value::Array(_), _) => {
            let entries: Vec<Entry> = value
                .clone()
                .try_into()
                .map_err(|error: toml::de::Error| place(error.message().to_owned()))?;
            sizes::from_entries(&entries).map_err(place)
        }
        _ => Err(must("sizes", value, SIZES)),
    }
}

fn published(value: &Value) -> Result<Published, String> {
    let valid = "a table of published numbers";
    let table = value.as_table().ok_or_else(|| must("published", value, valid))?;
    let mut found = Published { source: text_of(table, "source")?, ..Published::default() };
    for (key, value) in table {
        let slot = match key.as_str() {
            "speedup_percent" => &mut found.speedup_percent,
            "latency_reduction_percent" => &mut found.latency_reduction_percent,
            "ideal_speedup_percent" => &mut found.ideal_speedup_percent,
            "measured_speedup_percent" => &mut found.measured_speedup_percent,
            "error_points" => &mut found.error_points,
            "freed_percent" => &mut found.freed_percent,
            "offloads" => &mut found.offloads,
            "break_even_bytes" => &mut found.break_even_bytes,
            "source" => continue,
            "break_even_calibrated" => {
                found.break_even_calibrated = value.as_bool() == Some(true);
                continue;
            }
            _ => return Err(format!("published has an unknown key {key:?}")),
        };
        *slot = Some(number("published", value)?);
    }
    Ok(found)
}

fn text_of(table: &Table, key: &'static str) -> Result<Option<String>, String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    table.get(key).map(|value| text(value).ok_or_else(|| must(key, value, "a text"))).transpose()
}

fn pair(key: &str, value: &Value) -> Result<(f64, f64), String> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let [low, high] = items else { return Err(must(key, value, "[low, high]")) };
    Ok((number(key, low)?, number(key, high)?))
}

fn number(key: &str, value: &Value) -> Result<f64, String> {
    let whole = value.as_integer().map(|whole| whole as f64);
    value.as_float().or(whole).ok_or_else(|| must(key, value, "a number"))
}

fn must(key: &str, value: &Value, valid: &str) -> String {
    format!("{key} is {value}; it must be {valid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
        threading = \"Async\"
        C = 2e9
        n = 1000
        A = 10
        [[case]]
        id = \"one\"
        alpha = { value = 0.15, interval = [0.1, 0.2], provenance = \"measured\" }
        L = { range = [1000, 3000], provenance = \"assumed\", source = \"a guess\" }
        [[case]]
        alpha = 0.3
        threading = \"Sync-OS\"
        L = 100
        sizes = [{ bytes = 100, calls = 3 }, { low_bytes = 128, high_bytes = 256, calls = 1 }]
    ";

    #[test]
    fn cases_take_what_they_do_not_say_from_the_top() {
        let queries = read(GOOD, None).expect("valid");
        let [one, two] = queries.as_slice() else { panic!("{queries:?}") };
        assert_eq!((one.id.as_str(), two.id.as_str()), ("one", "2"));
        assert_eq!(one.parameters[&Symbol::L].quantity.stated, 2_000.0);
        assert_eq!(one.parameters[&Symbol::Alpha].quantity.provenance, Provenance::Measured);
        assert_eq!(two.stated(Symbol::C), Some(2e9));
        assert_eq!(two.design.threading.name(), "Sync-OS");
        let sizes = two.sizes.as_ref().expect("given");
        assert_eq!((sizes.histogram.calls(), sizes.provenance), (4.0, Provenance::Configured));
        let said = "sizes = { of = [{ bytes = 9, calls = 3 }], \
                    provenance = \"assumed\", source = \"us\" }";
        let said = read(&format!("threading = \"Sync\"\nawaits_transfer = false\n{said}"), None);
        let said = &said.expect("valid")[0];
        assert_eq!(said.awaits_transfer, Some(false));
        let sizes = said.sizes.as_ref().expect("given");
        assert_eq!((sizes.provenance, sizes.source.as_deref()), (Provenance::Assumed, Some("us")));
        assert_eq!((one.awaits_transfer, one.sizes.as_ref()), (None, None));
    }

    #[test]
    fn queueing_may_be_a_distribution_and_nothing_else_may() {
        let read = |given: &str| read(&format!("threading = \"Sync\"\n{given}"), None);
        let queries = read("Q = { offloads = [400, 0, 0, 0], provenance = \"measured\" }");
        let queueing = &queries.expect("valid")[0].parameters[&Symbol::Q].quantity;
        assert_eq!(queueing.stated, 100.0);
        assert_eq!(queueing.spread, model::Spread::Interval { low: 0.0, high: 296.0 });
        for (given, text) in [
            ("L = { offloads = [1] }", "L has an unknown key \"offloads\"; there are value, "),
            ("Q = { offloads = [] }", "Q is 0 offloads' cycles; it must be 1 to 1048576"),
            ("Q = { offloads = [-1] }", "Q is -1; it must be"),
            ("Q = { offloads = 7 }", "offloads is 7; it must be a list of the cycles"),
            ("Q = { value = 7, offloads = [7] }", "Q is { "),
        ] {
            let error = read(given).expect_err(text);
            assert!(error.starts_with(&format!("case 1: {text}")), "{error}");
        }
    }

    #[test]
    fn faults_name_case_key_and_what_it_may_be() {
        let bad = [
            ("C = 2e9", "C = 0", "case one: C is 0; it must be a number above 0 (cycles)"),
            ("C = 2e9", "C = nan", "case one: C is NaN; it must be"),
            ("A = 10", "A = 0.5", "case one: A is 0.5; it must be a number of at least 1, or inf"),
            ("A = 10", "B = 10", "case one: unknown key \"B\"; there are C, alpha"),
            ("alpha = 0.3", "alpha = 1.3", "case 2: alpha is 1.3; it must be a number from 0 to 1"),
            ("alpha = 0.3", "alpha = \"x\"", "case 2: alpha is \"x\"; it must be a number"),
            ("[0.1, 0.2]", "[0.2, 0.3]", "case one: alpha is 0.2 to 0.3 around 0.15; it must be"),
            ("\"Sync-OS\"", "\"Fibers\"", "case 2: threading is \"Fibers\"; it must be Sync, "),
            ("bytes = 100,", "byte = 100,", "case 2: sizes: unknown field `byte`"),
            (
                "\"measured\"",
                "\"guessed\"",
                "case one: provenance is \"guessed\"; it must be measured",
            ),
        ];
        for (old, new, text) in bad {
            let error = read(&GOOD.replacen(old, new, 1), None).expect_err(text);
            assert!(error.starts_with(text), "{error}");
        }
        assert!(read("x = [", None).is_err());
    }
}
