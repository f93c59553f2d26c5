//! A live scheduler as a source of parameters: its counts are request for once, over gRPC, and become one query per
//! process, op and device. It changes nothing there.

mod line;
mod queries;

use std::time::Duration;

use api::Address;
use api::v1::scheduler_client::SchedulerClient;
use api::v1::{QueryRequest, QueryResponse};

use crate::query::Query;

/// What to ask for.
pub(crate) struct LiveRequest<'a> {
    pub(crate) address: &'a Address,
    pub(crate) last: Duration,
    /// Only this op, where given.
    pub(crate) op: Option<&'a str>,
    /// The host's clock (GHz), where given.
    pub(crate) clock_ghz: Option<f64>,
    /// Whether devices of profiles are request of as well: then it is enough to know the work.
    pub(crate) has_profiles: bool,
}

/// Questions, and what too little is known of for one.
#[derive(Debug)]
pub(crate) struct LiveQueries {
    pub(crate) queries: Vec<Query>,
    pub(crate) left_out: Vec<String>,
}

/// Asks the scheduler.
///
/// # Errors
/// Why there is no answer, or what it lacks.
pub(crate) fn queries(request: &LiveRequest<'_>) -> Result<LiveQueries, String> {
    let address = request.address;
    let placed = |problem: String| format!("scheduler {address}: {problem}");
    let response = counts(request).map_err(placed)?;
    let live = queries::of(&response, request);
    if live.queries.is_empty() {
        let why = match live.left_out.is_empty() {
            true => format!("no job in the last {} s", request.last.as_secs()),
            false => format!("not enough evidence:\n  {}", live.left_out.join("\n  ")),
        };
        return Err(placed(why));
    }
    Ok(live)
}

fn counts(request: &LiveRequest<'_>) -> Result<QueryResponse, String> {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let executor = executor.map_err(|error| error.to_string())?;
    let last_ms = u64::try_from(request.last.as_millis()).unwrap_or(u64::MAX);
    let op = request.op.unwrap_or_default().to_owned();
    let query = QueryRequest { last_ms, op, ..QueryRequest::default() };
    executor.block_on(async {
        let channel = api::wire::channel(request.address, ANSWER_LIMIT);
        let channel = channel.map_err(|status| status.message().to_owned())?;
        let mut client = SchedulerClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        let call = tokio::time::timeout(ANSWER_LIMIT, client.query(query)).await;
        match call {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(format!("{:?}: {}", status.code(), status.message())),
            Err(_) => Err(format!("no answer within {} s", ANSWER_LIMIT.as_secs())),
        }
    })
}

const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Some thousand processes with all of their paths.
const ANSWER_BYTES_MAX: usize = 64 << 20;
