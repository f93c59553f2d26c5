//! The properties of a gRPC call other than its message: its memory limit, deadline, tenant and caller.

use std::time::Duration;

use device::TenantId;
use hyper::HeaderMap;
use tonic::{Request, Status};
use units::Nanos;

use super::caller::Caller;
use super::charge::Charge;

/// A call's memory limit, deadline, tenant and caller, which the request's extensions carry.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) charge: Charge,
    /// The deadline on the worker's clock.
    pub(super) deadline: Option<Nanos>,
    /// The tenant of the caller's role or else of the connection on which the call arrived.
    pub(super) tenant: TenantId,
    /// Who makes the call.
    pub(super) caller: Caller,
}

impl Call {
    /// Removes and returns the `Call` that the router attached to the request.
    pub(super) fn from_request<T>(request: &mut Request<T>) -> Result<Self, Status> {
        let call = request.extensions_mut().remove::<Call>();
        call.ok_or_else(|| Status::internal("the call did not come through the router"))
    }
}

/// Parses the client's timeout for the call (gRPC over HTTP/2, "Timeout").
///
/// # Errors
/// Returns `INVALID_ARGUMENT` if the header is not a valid timeout.
pub(super) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(header) = headers.get("grpc-timeout") else { return Ok(None) };
    let parse = || {
        let text = header.to_str().ok()?;
        let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let plain = (1..=DIGITS_MAX).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_digit());
        let count: u64 = digits.parse().ok().filter(|_| plain)?;
        Some(match unit {
            "H" => Duration::from_secs(count * 3_600),
            "M" => Duration::from_secs(count * 60),
            "S" => Duration::from_secs(count),
            "m" => Duration::from_millis(count),
            "u" => Duration::from_micros(count),
            "n" => Duration::from_nanos(count),
            _ => return None,
        })
    };
    let bad = || {
        let valid = "1 to 8 digits and one of H, M, S, m, u, n";
        Status::invalid_argument(format!("grpc-timeout is {header:?}; valid is {valid}"))
    };
    parse().map(Some).ok_or_else(bad)
}

/// The maximum number of digits of a timeout, from the specification.
const DIGITS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_specified_and_others_refused() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().expect("a header"));
            timeout(&headers)
        };
        assert_eq!(timeout(&HeaderMap::new()).expect("none"), None);
        for (text, expected_ns) in
            [("1n", 1), ("20u", 20_000), ("3m", 3_000_000), ("99999999n", 99_999_999)]
        {
            let expected = Duration::from_nanos(expected_ns);
            assert_eq!(read(text).expect(text), Some(expected));
        }
        assert_eq!(read("2H").expect("hours"), Some(Duration::from_secs(7_200)));
        for text in ["", "S", "1", "1s", "-1S", "+1S", "123456789S", "1.5S", "1 S"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
