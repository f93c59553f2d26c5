//! Answers memcached's commands about slabs and LRU lists. The embedded store has neither, so no command has an effect,
//! but the answers are memcached's, so that tools and people see their mistakes.

use protocol::Tokens;
use protocol::number::{signed_32, unsigned_32};
use protocol::refusal::{BAD_FORMAT, ERROR};
use protocol::reply::Reply;

/// Answers `slabs reassign` and `slabs automove`.
pub(super) fn slabs(arguments: Tokens<'_>) -> &'static [u8] {
    let words = all::<4>(arguments);
    match words {
        [Some(b"reassign"), Some(from), Some(to), None] => {
            let Some((from, to)) = signed_32(from).zip(signed_32(to)) else { return BAD_FORMAT };
            let is_class = |class: i32| CLASSES.contains(&class.unsigned_abs());
            match () {
                () if from == to => b"SAME src and dst class are identical\r\n",
                () if from != -1 && !is_class(from) || !is_class(to) => {
                    b"BADCLASS invalid src or dst class id\r\n"
                }
                () => b"NOSPARE source class has no spare pages\r\n",
            }
        }
        [Some(b"automove"), Some(b"ratio"), ratio, _] => is_or_error(decimal(ratio).is_some()),
        [Some(b"automove"), Some(level), ..] => match unsigned_32(level) {
            Some(level) => is_or_error(level <= 2),
            None => BAD_FORMAT,
        },
        _ => ERROR,
    }
}

/// Answers `lru tune`, `lru mode` and `lru temp_ttl`.
pub(super) fn lru(arguments: Tokens<'_>) -> &'static [u8] {
    match all::<5>(arguments) {
        [Some(b"tune"), Some(hot), Some(warm), hot_factor @ Some(_), warm_factor @ Some(_)] => {
            let Some((hot, warm)) = unsigned_32(hot).zip(unsigned_32(warm)) else { return ERROR };
            match (decimal(hot_factor), decimal(warm_factor)) {
                (Some(hot), Some(warm)) if hot <= 0.0 || warm <= 0.0 => {
                    b"ERROR hot/warm age factors must be greater than 0\r\n"
                }
                (Some(_), Some(_)) if hot.saturating_add(warm) > 80 => {
                    b"ERROR hot and warm pcts must not exceed 80\r\n"
                }
                (Some(_), Some(_)) => Reply::Ok.line(),
                _ => ERROR,
            }
        }
        [Some(b"mode"), Some(mode), ..] => is_or_error(mode == b"flat" || mode == b"segmented"),
        [Some(b"temp_ttl"), Some(ttl), ..] => is_or_error(signed_32(ttl).is_some()),
        _ => ERROR,
    }
}

/// Answers `lru_crawler`, except for the lists of keys.
pub(super) fn lru_crawler(arguments: Tokens<'_>) -> &'static [u8] {
    match all::<3>(arguments) {
        [Some(b"crawl"), Some(classes), None] => {
            let is_class =
                |class: &[u8]| unsigned_32(class).is_some_and(|id| CLASSES.contains(&id));
            let are_classes = classes == b"all" || classes.split(|b| *b == b',').all(is_class);
            if are_classes { Reply::Ok.line() } else { b"BADCLASS invalid class id\r\n" }
        }
        [Some(b"tocrawl"), Some(count), None] => {
            if unsigned_32(count).is_some() {
                Reply::Ok.line()
            } else {
                BAD_FORMAT
            }
        }
        [Some(b"sleep"), Some(sleep_us), None] => match unsigned_32(sleep_us) {
            Some(0..=1_000_000) => Reply::Ok.line(),
            Some(_) => b"CLIENT_ERROR sleep must be one second or less\r\n",
            None => BAD_FORMAT,
        },
        [Some(b"enable" | b"disable"), None, None] => Reply::Ok.line(),
        _ => ERROR,
    }
}

/// Returns the first `N` words. If there are more, the last one is a word all the same.
fn all<const N: usize>(mut arguments: Tokens<'_>) -> [Option<&[u8]>; N] {
    std::array::from_fn(|_| arguments.next())
}

fn decimal(word: Option<&[u8]>) -> Option<f64> {
    std::str::from_utf8(word?).ok()?.parse().ok()
}

fn is_or_error(is_valid: bool) -> &'static [u8] {
    if is_valid { Reply::Ok.line() } else { ERROR }
}

/// The numbers of slab classes that memcached may have.
const CLASSES: std::ops::RangeInclusive<u32> = 1..=63;
