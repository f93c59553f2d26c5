//! Generates a trade log as comma-separated values: sequence number, time, price, quantity, score and venue.

use super::text::Text;

pub(super) fn generate(mut text: Text) -> Vec<u8> {
    let (mut sequence, mut time_ms, mut price_cents) = (1_000_000, 1_700_000_000_000, 10_000);
    while !text.is_full() {
        sequence += 1;
        time_ms += text.number(0, 40);
        price_cents = (price_cents + text.number(0, 8)).saturating_sub(4).max(100);
        let quantity = text.number(1, 20) * 100;
        let (venue, score) = (text.number(1, 8), text.number(0, 99));
        text.put_format(format_args!(
            "{sequence},{}.{:03},{}.{:02},{quantity},0.{score:02},{venue}\n",
            time_ms / 1_000,
            time_ms % 1_000,
            price_cents / 100,
            price_cents % 100,
        ));
    }
    text.finish()
}
