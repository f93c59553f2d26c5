//! A live scheduler as a source of parameters. The module requests the scheduler's counts once over gRPC and turns them
//! into one query per process, op and device. It changes nothing in the scheduler.

mod line;
mod queries;

use std::time::Duration;

use api::v1::scheduler_client::SchedulerClient;
use api::v1::{QueryRequest, QueryResponse};
use api::{Address, LoginFile};

use crate::query::Query;

/// A request for the scheduler's counts.
pub(crate) struct LiveRequest<'a> {
    pub(crate) address: &'a Address,
    pub(crate) last: Duration,
    pub(crate) login: Option<&'a LoginFile>,
    /// The only op that is requested, or `None` for all ops.
    pub(crate) op: Option<&'a str>,
    /// The host's clock (GHz), or `None` if it is unknown.
    pub(crate) clock_ghz: Option<f64>,
    /// True if the query will also be evaluated with device profiles. Then the costs in software are enough: no job
    /// needs to have been offloaded.
    pub(crate) has_profiles: bool,
}

/// The queries, and the parts about which too little is known for a query.
#[derive(Debug)]
pub(crate) struct LiveQueries {
    pub(crate) queries: Vec<Query>,
    pub(crate) left_out: Vec<String>,
}

/// Requests the scheduler's counts and turns them into queries.
///
/// # Errors
/// The scheduler does not answer, or the answer is not enough for any query.
pub(crate) fn queries(request: &LiveRequest<'_>) -> Result<LiveQueries, String> {
    let address = request.address;
    let placed = |problem: String| format!("scheduler {address}: {problem}");
    let response = counts(request).map_err(placed)?;
    let live = queries::from_counts(&response, request);
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
    let mut query = api::tonic::Request::new(query);
    if let Some(login) = request.login {
        login.current().authorize(&mut query);
    }
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

/// The longest answer that is accepted (bytes), enough for some thousand processes with all of their paths.
const ANSWER_BYTES_MAX: usize = 64 << 20;
