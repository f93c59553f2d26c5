//! Shows the comparison of Rebate with memcached on records as a table.

use experiments::records::{Cached, RecordComparison, RecordKind};

use crate::terminal::{WIDTH, numbers, wrapped};

/// Formats the comparison as text.
pub(super) fn table(comparison: &RecordComparison) -> String {
    let title = format!(
        "records in {}: `rebate memcached` and memcached, one thread each, the same requests: \
         every record is set once, then gets by Zipf's law, and a miss is set",
        comparison.memory
    );
    let head = ["record", "cache", "items", "of memcached's", "hit ratio", "CPU us/get", "RSS MiB"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for kind in &comparison.kinds {
        rows.extend(kind.memcached.iter().map(|cached| row(kind, "memcached", cached, None)));
        rows.push(row(kind, "rebate", &kind.rebate, kind.items_ratio()));
    }
    let mut lines = wrapped(&title, WIDTH);
    lines.extend(numbers(&rows));
    if comparison.kinds.iter().any(|kind| kind.memcached.is_none()) {
        lines.extend(wrapped(MEMCACHED_IS_MISSING, WIDTH));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn row(kind: &RecordKind, cache: &str, cached: &Cached, ratio: Option<f64>) -> Vec<String> {
    vec![
        format!("{}, {:.0} B", kind.class, kind.record_bytes),
        cache.to_owned(),
        format!("{:.0}", cached.items),
        ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}x")),
        format!("{:.3}", cached.hit_ratio),
        format!("{:.1}", cached.cpu_us),
        format!("{:.0}", cached.rss_bytes / f64::from(1 << 20)),
    ]
}

const MEMCACHED_IS_MISSING: &str = "\
memcached is not installed, so only Rebate's side was measured. To compare both, install it: apt-get install memcached \
on Debian and Ubuntu, dnf install memcached on Fedora, brew install memcached on macOS";
