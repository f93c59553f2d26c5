//! The page with a profile of this process's CPU time, in the format of pprof. A thread of its own takes it, so that
//! the other pages and the acceptors go on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use tokio::sync::oneshot;

use super::Admin;
use crate::platform::ProfileCpu;

/// Takes a profile for as long as the query says, in `seconds`. Ends it when the client goes away.
pub(super) async fn answer(admin: &Admin, query: Option<&str>) -> Response {
    let Some(profile) = admin.plan.platform.profile_cpu else {
        return refusal(StatusCode::NOT_IMPLEMENTED, "this build takes no profiles");
    };
    let length = match length(query) {
        Ok(length) => length,
        Err(why) => return refusal(StatusCode::BAD_REQUEST, &why),
    };
    tracing::info!(seconds = length.as_secs(), "a CPU profile was asked for");
    match take(profile, length).await {
        Ok(bytes) => {
            let kind = (CONTENT_TYPE, "application/octet-stream");
            let name = (CONTENT_DISPOSITION, "attachment; filename=\"rebate.pprof\"");
            ([kind, name], bytes).into_response()
        }
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let why = "another profile is being taken: ask again when it is done";
            refusal(StatusCode::CONFLICT, why)
        }
        Err(error) => {
            tracing::warn!(%error, "no CPU profile could be taken");
            refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("no profile: {error}"))
        }
    }
}

fn refusal(status: StatusCode, why: &str) -> Response {
    (status, format!("{why}\n")).into_response()
}

/// Returns the length of the profile that a query such as `seconds=30` asks for.
fn length(query: Option<&str>) -> Result<Duration, String> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let mut seconds = SECONDS;
    for pair in pairs {
        let Some(text) = pair.strip_prefix("seconds=") else {
            return Err(format!("unknown parameter {pair:?}: only seconds=N is known"));
        };
        let wanted = text.parse().ok().filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
        seconds = wanted.ok_or(format!("seconds={text}: give 1 to {SECONDS_MAX}"))?;
    }
    Ok(Duration::from_secs(seconds))
}

async fn take(profile: ProfileCpu, length: Duration) -> io::Result<Vec<u8>> {
    let (done, result) = oneshot::channel();
    let cancelled = Arc::new(AtomicBool::new(false));
    let _cancel = CancelOnDrop(Arc::clone(&cancelled));
    let take = move || {
        // The client may be gone.
        let _ = done.send(profile(length, &cancelled));
    };
    std::thread::Builder::new().name("rebate-profile".to_owned()).spawn(take)?;
    result.await.map_err(|_| io::Error::other("the thread that takes it has ended"))?
}

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The length of a profile if the query does not say it (s).
const SECONDS: u64 = 10;

/// The longest profile (s).
pub(super) const SECONDS_MAX: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_gives_the_length() {
        assert_eq!(length(None), Ok(Duration::from_secs(10)));
        assert_eq!(length(Some("")), Ok(Duration::from_secs(10)));
        assert_eq!(length(Some("seconds=1")), Ok(Duration::from_secs(1)));
        assert_eq!(length(Some("seconds=60")), Ok(Duration::from_secs(60)));
    }

    #[test]
    fn a_length_that_cannot_be_had_is_refused() {
        for query in ["seconds=0", "seconds=61", "seconds=", "seconds=-1", "seconds=1.5", "hz=9"] {
            assert!(length(Some(query)).is_err(), "{query}");
        }
    }
}
