//! The context of a distributed trace, in the form of the W3C recommendation "Trace Context" (level 1, section 3.2).

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};
use std::str::FromStr;

/// The trace to which a request belongs, and the span that made the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: NonZeroU128,
    /// The span of the caller.
    pub span_id: NonZeroU64,
    /// Whether the caller records its span, and wants those that follow from it recorded.
    pub is_sampled: bool,
}

impl TraceContext {
    /// The name of the header, and of the key in gRPC metadata.
    pub const HEADER: &str = "traceparent";

    /// Returns the sampled context as three words, for entries of fixed size.
    pub const fn to_words(self) -> [u64; 3] {
        let trace_id = self.trace_id.get();
        [(trace_id >> 64) as u64, trace_id as u64, self.span_id.get()]
    }

    /// Reads the words of a sampled context. All words are zero if there is none.
    ///
    /// # Errors
    /// The words are neither.
    pub fn read_words([high, low, span_id]: [u64; 3]) -> Result<Option<Self>, NotATraceContext> {
        let trace_id = NonZeroU128::new(u128::from(high) << 64 | u128::from(low));
        match (trace_id, NonZeroU64::new(span_id)) {
            (Some(trace_id), Some(span_id)) => {
                Ok(Some(Self { trace_id, span_id, is_sampled: true }))
            }
            (None, None) => Ok(None),
            _ => Err(NotATraceContext),
        }
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, is_sampled } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(*is_sampled))
    }
}

impl FromStr for TraceContext {
    type Err = NotATraceContext;

    /// Reads the value of the header. As the recommendation says, a later version may have more behind its flags.
    fn from_str(text: &str) -> Result<Self, NotATraceContext> {
        let (version, rest) = text.split_once('-').ok_or(NotATraceContext)?;
        let version = hex(version, 2)?;
        let mut parts = rest.splitn(4, '-');
        let mut part = |digits| hex(parts.next().unwrap_or_default(), digits);
        let (trace_id, span_id, flags) = (part(32)?, part(16)?, part(2)?);
        let has_more = parts.next().is_some();
        if version == 0xff || (version == 0 && has_more) {
            return Err(NotATraceContext);
        }
        Ok(Self {
            trace_id: NonZeroU128::new(trace_id).ok_or(NotATraceContext)?,
            span_id: NonZeroU64::new(span_id as u64).ok_or(NotATraceContext)?,
            is_sampled: flags & SAMPLED != 0,
        })
    }
}

/// Reads a number of exactly this many lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Result<u128, NotATraceContext> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_hex = text.len() == digits && text.bytes().all(is_digit);
    u128::from_str_radix(text, 16).ok().filter(|_| is_hex).ok_or(NotATraceContext)
}

/// The bit of the flags that says that the caller records its span.
const SAMPLED: u128 = 1;

/// The text or the words are no trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotATraceContext;

impl fmt::Display for NotATraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no W3C trace context (00-TRACE_ID-SPAN_ID-FLAGS)")
    }
}

impl std::error::Error for NotATraceContext {}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_example_of_the_recommendation_is_read_and_written() {
        let context: TraceContext = TEXT.parse().expect("a context");
        assert_eq!(context.trace_id.get(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span_id.get(), 0x00f0_67aa_0ba9_02b7);
        assert!(context.is_sampled);
        assert_eq!(context.to_string(), TEXT);
        assert_eq!(TraceContext::read_words(context.to_words()), Ok(Some(context)));
    }

    #[test]
    fn later_versions_may_have_more() {
        let later = TEXT.replacen("00", "01", 1) + "-more";
        assert!(later.parse::<TraceContext>().is_ok());
        let unsampled = TEXT.replace("-01", "-02");
        assert!(!unsampled.parse::<TraceContext>().expect("a context").is_sampled);
    }

    #[test]
    fn anything_else_is_refused() {
        let zero = "00000000000000000000000000000000";
        for text in [
            "",
            "00",
            &TEXT[..54],
            &format!("{TEXT}-more"),
            &TEXT.replacen("00", "ff", 1),
            &TEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", zero),
            &TEXT.replace("00f067aa0ba902b7", &zero[..16]),
            &TEXT.to_uppercase(),
            &TEXT.replace("-01", "-+1"),
        ] {
            assert_eq!(text.parse::<TraceContext>(), Err(NotATraceContext), "{text}");
        }
        for words in [[0, 0, 1], [1, 0, 0], [0, 1, 0]] {
            assert_eq!(TraceContext::read_words(words), Err(NotATraceContext));
        }
        assert_eq!(TraceContext::read_words([0; 3]), Ok(None));
    }
}
