//! The page: the rows, the parts of a request's time, and the results that do not follow from \[Arcalis\]. The
//! functions return values and write nothing.

use report::{Column, Report, Section, Table};

use super::runner::{Case, Runner, WORKLOADS};
use super::{Count, inputs};
use crate::base::figures::facts;
use crate::base::rows::{Row, Rows};
use crate::base::{Problem, agreement};

/// Returns one table row for each workload, with the parts of a request's time (ns).
pub(super) fn stages(runner: &Runner) -> Result<Vec<Vec<String>>, Problem> {
    let row = |workload: &str| {
        let case = Case::new(workload);
        let facts = STAGES.map(|(fact, _)| runner.fact(&case, fact));
        let cells = facts.into_iter().map(|fact| Ok(format!("{:.0}", fact?)));
        std::iter::once(Ok(workload.to_owned())).chain(cells).collect()
    };
    WORKLOADS.into_iter().map(row).collect()
}

/// Adds the rows that count how many predictions agree, and returns the page.
///
/// # Errors
/// A specification cannot be read.
pub(super) fn report(
    rows: &mut Rows,
    count: &Count,
    stages: Vec<Vec<String>>,
    extent: &str,
) -> Result<Report, Problem> {
    let agreement = agreement::section(
        &mut rows.rows,
        |row| vec![row.id.split('.').take(2).collect::<Vec<_>>().join(" ")],
        |row| Some(number(&row.id)),
    );
    let rows = &*rows;
    let origins = vec![inputs::table("arcalis")?, inputs::table("arcalis-measured")?];
    let all = Table {
        caption: "Published and ours".to_owned(),
        header: Row::columns(),
        rows: rows.rows.iter().map(|row| row.cells().to_vec()).collect(),
    };
    let names = STAGES.map(|(_, name)| Column::number(name));
    let stages = Table {
        caption: "Nanoseconds of a request, engine near the cache".to_owned(),
        header: std::iter::once(Column::text("workload")).chain(names).collect(),
        rows: stages,
    };
    let section = |heading: &str, prose: Vec<String>, tables: Vec<Table>| Section {
        heading: heading.to_owned(),
        prose,
        figures: Vec::new(),
        tables,
        notes: Vec::new(),
    };
    let mut intro: Vec<String> = PROSE.map(str::to_owned).to_vec();
    intro.push(format!("{}.", count.line()));
    Ok(Report {
        title: "Arcalis, simulated and in software".to_owned(),
        subtitle: "The paper's results beside a model whose engine is the functional one, and \
                   beside that engine on this machine."
            .to_owned(),
        facts: facts(rows, [("simulated", extent.to_owned())]),
        sections: vec![
            agreement,
            section("The paper's numbers", intro, vec![all]),
            section("Where the time goes", WHERE.map(str::to_owned).to_vec(), vec![stages]),
            section("In software", SOFTWARE.map(str::to_owned).to_vec(), Vec::new()),
            section("What contradicts itself", CONTRADICTS.map(str::to_owned).to_vec(), Vec::new()),
            section("Inputs by origin", ORIGINS.map(str::to_owned).to_vec(), origins),
        ],
    })
}

/// Returns the name of the published number that a row predicts. The paper prints one bound for the slowdowns of four
/// workloads, and the numbers with measured inputs are those of figure 11.
fn number(id: &str) -> String {
    match id.strip_prefix("measured_inputs.").unwrap_or(id) {
        bound if bound.starts_with("slowdown_400ns.") => "slowdown_400ns".to_owned(),
        number => number.to_owned(),
    }
}

const ORIGINS: [&str; 1] = [
    "`arcalis-measured` has our own handlers and software in the place of ten fitted constants. The rows \
     `measured_inputs.` show what the model then says, beside the published numbers.",
];

const STAGES: [(&str, &str); 11] = [
    ("app_handler_ns", "handler"),
    ("app_bytes_ns", "its bytes"),
    ("app_issue_ns", "its words"),
    ("app_wait_ns", "its wait"),
    ("rx_header_ns", "Rx header"),
    ("rx_deserialize_ns", "Rx deser."),
    ("rx_memory_ns", "Rx memory"),
    ("tx_serialize_ns", "Tx"),
    ("tx_memory_ns", "Tx memory"),
    ("command_ns", "commands"),
    ("net_ns", "NetCore"),
];

const PROSE: [&str; 2] = [
    "Nineteen constants are fitted to nineteen published numbers, a list that stands in `specs/sim/arcalis.toml` \
     and `specs/sim/arcalis-dagger.toml`; these rows are calibrated, and so is every number that can be computed \
     from them by hand: a mix of two fitted ones, one access more for a request, a cost for each byte. What has no \
     published number is predicted by stations, message bytes and the engine's own steps.",
    "An interconnect's latency is read as what a load of the command page takes there and back; stores are \
     posted, a word is half of it on its way. A row without a published number says what the model adds.",
];

const WHERE: [&str; 2] = [
    "The application core's handler, bytes, words and wait are one after another and make up a request's time; \
     its wait is one access, the command interface and all of Rx, because listing 1 asks for the next request \
     only when it has answered the last. Tx and NetCore overlap with it.",
    "So a request of T takes 395 ns more at 400 ns: 10 % of 3.9 us for memcached, 3 to 5 % for the others. At 700 \
     ns it is 695 ns, 18 %; the paper's 21 % are 3 points more, as if 1.2 accesses instead of one were on \
     a request's way.",
];

const SOFTWARE: [&str; 2] = [
    "Rows time and share are where the CPU time of our service's one thread goes over TCP on loopback: sockets \
     (network), from a whole frame to its answer (rpc), the store (handler); the last two are elapsed time. \
     The paper's are Thrift's, first over \
     the kernel's network and then over DPDK, which this does not have.",
    "Rows counted are what callgrind simulates for a request, with first-level caches as in the paper's table \
     IV: inline is engine and handler on one core, application the core that is left with the handler where the \
     engine has another. Both threads share one simulated cache, so what a line costs that another core wrote is \
     not in them; waiting is not counted. An engine in software frees one core and takes another: these rows say \
     what a core is relieved of, not that anything is gained.",
];

const CONTRADICTS: [&str; 9] = [
    "Throughput is said to gain 2.5 to 3.3 times, 'mirroring' speedups of 1.79 to 4.16: rows throughput_gain and \
     contradiction.gain. 3.05 and 3.33, memc_high and unique_id, and 2.58, post_low, do fit.",
    "Throughput ends at 247 k/s and has 258 k/s among its values.",
    "memc_mid's 202 k/s: with any costs of SET and GET, time at 50 % SET is the mean of that at 20 and at 80 %: \
     253 k/s.",
    "SET is said to have the higher serialization overhead; from 248 k/s at 4.16 and 258 k/s at 3.05 times a GET \
     takes the CPU 18.4 us and a SET 10.2 us.",
    "The CPU's 25 k/s: of the workloads with a printed throughput none is below 41 k/s, so it has to be \
     unique_id; then Arcalis does 83 k/s of it.",
    "Figure 16 has 910 k/s where figure 11b has 202 k/s for the same half of SETs; packets explain 16 % (figure \
     15b). So figure 16 has a scenario of its own. Its bytes cost six times as much as figure 15b's.",
    "The abstract's 1.62 times is none of figure 16's ratios (1.67, 1.52, 1.05, 0.98), nor a mean of two of them \
     that is rounded so.",
    "Listing 1 waits for a frame before it takes the next packet: with one request in flight two accesses are on \
     every request's way, and 400 ns cost memcached twice what figure 15a has. Section IV-A's several requests in \
     flight fit it.",
    "The opcode is in the low bits of the physical address (IV-A) or of the 64-bit word (IV-B, figure 8); figure \
     15's caption has (a) and (b) the other way round than the text; data-cache accesses fall by up to 48.6 % and \
     by 48.8 %.",
];
