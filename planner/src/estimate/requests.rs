//! The CPU time that compression adds to requests. The codecs are only a part of it: a server also finds the class and
//! the dictionary of a value, makes a job of it, checks it, and copies it, and its caches are colder than those of a
//! loop over codecs. So the caller has a server run the requests, with compression and without, and this module
//! corrects the times of the codecs by what the server took more.

use std::sync::Arc;

use device::Dictionary;

use super::codecs::{Forms, Measured};

/// Runs requests on a server on this machine. The caller implements it, because this crate has no server.
pub trait RequestTimer {
    /// Sets and gets these values, with compression and without, and returns the difference.
    ///
    /// # Errors
    /// The requests could not be timed, for this reason.
    fn added(&mut self, requests: &Requests<'_>) -> Result<AddedTime, String>;
}

/// Values of one class to set and to get.
pub struct Requests<'a> {
    /// The key and the value of each item.
    pub items: &'a [(&'a [u8], &'a [u8])],
    /// The dictionary with which the values are compressed. If none, the server uses no dictionaries.
    pub dictionary: Option<Arc<Dictionary>>,
}

/// The CPU time that compression adds to one request (ns), as a mean over the items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddedTime {
    /// The time for a set.
    pub set_ns: f64,
    /// The time for a get that finds its value.
    pub get_ns: f64,
}

/// The values of a class with their measured forms.
pub(super) struct ClassForms<'a> {
    pub(super) keys: &'a [&'a [u8]],
    pub(super) values: &'a [&'a [u8]],
    pub(super) forms: &'a mut [Forms],
    /// The dictionary with which the values at even places were measured.
    pub(super) dictionary: Option<Arc<Dictionary>>,
}

/// Corrects the times of all values of a class by what a server takes for requests of some of them.
pub(super) fn correct(
    timer: &mut dyn RequestTimer,
    class: &mut ClassForms<'_>,
) -> Result<(), String> {
    let places = timed_places(class);
    let items: Vec<(&[u8], &[u8])> =
        places.iter().map(|at| (class.keys[*at], class.values[*at])).collect();
    if items.is_empty() {
        return Ok(());
    }
    let plain = timer.added(&Requests { items: &items, dictionary: None })?;
    let codec = mean(places.iter().map(|at| &class.forms[*at].plain));
    class.forms.iter_mut().for_each(|forms| shift(&mut forms.plain, plain, codec));
    let Some(dictionary) = class.dictionary.clone() else { return Ok(()) };
    let added = timer.added(&Requests { items: &items, dictionary: Some(dictionary) })?;
    let codec = mean(places.iter().filter_map(|at| class.forms[*at].dictionary.as_ref()));
    for measured in class.forms.iter_mut().filter_map(|forms| forms.dictionary.as_mut()) {
        shift(measured, added, codec);
    }
    Ok(())
}

/// Returns the places of the first values that the class's dictionary was not trained on, and whose key a text command
/// can have.
fn timed_places(class: &ClassForms<'_>) -> Vec<usize> {
    let mut bytes = 0;
    let is_valid = |at: &usize| protocol::Key::new(class.keys[*at]).is_ok();
    let even = (0..class.forms.len()).step_by(2).filter(is_valid);
    let within = |at: &usize| {
        bytes += class.values[*at].len();
        bytes <= TIMED_BYTES_MAX
    };
    even.take(TIMED_VALUES_MAX).take_while(within).collect()
}

/// Returns the mean times of the codecs.
fn mean<'a>(measured: impl Iterator<Item = &'a Measured> + Clone) -> AddedTime {
    let count = measured.clone().count().max(1) as f64;
    let mean = |time: fn(&Measured) -> f64| measured.clone().map(time).sum::<f64>() / count;
    AddedTime {
        set_ns: mean(|measured| measured.compress_ns),
        get_ns: mean(|measured| measured.decompress_ns),
    }
}

/// Adds what a request takes beside the codec.
fn shift(measured: &mut Measured, added: AddedTime, codec: AddedTime) {
    measured.compress_ns = (measured.compress_ns + added.set_ns - codec.set_ns).max(0.0);
    measured.decompress_ns = (measured.decompress_ns + added.get_ns - codec.get_ns).max(0.0);
}

/// The most values of a class that are set and read on a server.
const TIMED_VALUES_MAX: usize = 500;

/// The most bytes of these values.
const TIMED_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A server that takes these times, and counts what it is asked.
    struct Fixed {
        added: AddedTime,
        asked: Vec<usize>,
    }

    impl RequestTimer for Fixed {
        fn added(&mut self, requests: &Requests<'_>) -> Result<AddedTime, String> {
            self.asked.push(requests.items.len());
            Ok(self.added)
        }
    }

    fn forms(compress_ns: f64) -> Forms {
        let (stored_bytes, decompress_ns) = (10, 100.0);
        let plain = Measured { stored_bytes, omitted_bytes: 0, compress_ns, decompress_ns };
        Forms { plain, dictionary: None, codec_bytes: [10; device::Codec::ALL.len()] }
    }

    fn corrected(keys: &[&[u8]], added: AddedTime) -> (Vec<Forms>, Vec<usize>) {
        let mut forms: Vec<Forms> =
            (0..keys.len()).map(|at| forms(1_000.0 + 100.0 * at as f64)).collect();
        let values: Vec<&[u8]> = vec![b"value"; keys.len()];
        let mut timer = Fixed { added, asked: Vec::new() };
        let mut class = ClassForms { keys, values: &values, forms: &mut forms, dictionary: None };
        correct(&mut timer, &mut class).unwrap();
        (forms, timer.asked)
    }

    #[test]
    fn the_mean_becomes_that_of_the_server() {
        let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
        let (forms, asked) = corrected(&keys, AddedTime { set_ns: 2_100.0, get_ns: 700.0 });
        // The values at places 0 and 2 are set and read. Their codecs took 1,000 and 1,200 ns.
        assert_eq!(asked, [2]);
        let compress: Vec<f64> = forms.iter().map(|forms| forms.plain.compress_ns).collect();
        assert_eq!(compress, [2_000.0, 2_100.0, 2_200.0]);
        assert!(forms.iter().all(|forms| forms.plain.decompress_ns == 700.0));
    }

    #[test]
    fn no_time_is_negative() {
        let (forms, _) = corrected(&[b"a"], AddedTime { set_ns: -50.0, get_ns: -1.0 });
        assert_eq!((forms[0].plain.compress_ns, forms[0].plain.decompress_ns), (0.0, 0.0));
    }

    #[test]
    fn keys_that_no_command_can_have_are_left_out() {
        let (forms, asked) = corrected(&[b"a b", b"c"], AddedTime { set_ns: 1.0, get_ns: 1.0 });
        assert!(asked.is_empty());
        assert_eq!(forms[0].plain.compress_ns, 1_000.0);
    }
}
