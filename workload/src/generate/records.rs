//! Generates records: the small values of real caches. Two records of a kind have the same fields and differ in ids,
//! tokens and dates, so that they compress well together and hardly alone. A record ends with a list that goes on until
//! the record has its length, and is cut there.

use super::text::Text;

/// Writes one record of a kind until the text is full.
pub(crate) type RecordWriter = fn(&mut Text);

/// Writes nested JSON with ids and a date, and a list of the lines of an order.
pub(super) fn json(text: &mut Text) {
    let (id, user) = (text.number(0, 999_999_999), text.number(0, 9_999_999));
    let kind = text.one_of(&["order", "invoice", "refund"]);
    let plan = text.one_of(&["free", "pro", "team"]);
    let (month, day, hour) = (text.number(1, 12), text.number(1, 28), text.number(0, 23));
    let (total, cents) = (text.number(1, 499), text.number(0, 99));
    text.put_format(format_args!(
        "{{\"id\":{id},\"type\":\"{kind}\",\"user\":{{\"id\":{user},\"plan\":\"{plan}\"}},\
         \"updated\":\"2026-{month:02}-{day:02}T{hour:02}:00:00Z\",\"total\":{total}.{cents:02},\
         \"lines\":["
    ));
    while !text.is_full() {
        let (item, count) = (text.number(0, 99_999), text.number(1, 19));
        text.put_format(format_args!("{{\"item\":{item},\"count\":{count}}},"));
    }
}

/// Writes a session of PHP with two random tokens, and a list of the articles in the cart.
pub(super) fn session(text: &mut Text) {
    let user = text.number(0, 9_999_999);
    text.put_format(format_args!("user_id|i:{user};csrf|s:20:\""));
    text.put_hexadecimal(20);
    let locale = text.one_of(&["en_US", "de_DE", "fr_FR"]);
    let seen_s = 1_790_000_000 + text.number(0, 999_999);
    text.put_format(format_args!(
        "\";locale|s:5:\"{locale}\";last_seen|i:{seen_s};flash|a:0:{{}}seed|s:8:\""
    ));
    text.put_hexadecimal(8);
    let articles = text.free_bytes() / 30 + 1;
    text.put_format(format_args!("\";cart|a:{articles}:{{"));
    for position in 0.. {
        if text.is_full() {
            return;
        }
        let article = text.number(0, 99_999);
        text.put_format(format_args!("i:{position};a:1:{{s:4:\"item\";i:{article};}}"));
    }
}

/// Writes a message of protobuf with 16 random bytes, numbers and short texts, and a list of small messages.
pub(super) fn protobuf(text: &mut Text) {
    text.put_bytes(&[1 << 3]);
    put_varint(text, 0, 999_999_999);
    text.put_bytes(&[2 << 3 | LENGTH_FOLLOWS, 16]);
    text.put_random(16);
    let user = text.number(0, 9_999_999);
    text.put_bytes(&[3 << 3 | LENGTH_FOLLOWS, 12]);
    text.put_format(format_args!("user-{user:07}"));
    text.put_bytes(&[4 << 3]);
    put_varint(text, 0, 999_999);
    let amount = text.number(1, 99) as f64;
    text.put_bytes(&[5 << 3 | EIGHT_BYTES]);
    text.put_bytes(&amount.to_le_bytes());
    text.put_bytes(&[6 << 3 | LENGTH_FOLLOWS, 6]);
    text.put("active");
    text.put_bytes(&[7 << 3, 1]);
    while !text.is_full() {
        text.put_bytes(&[8 << 3 | LENGTH_FOLLOWS, 5, 1 << 3]);
        put_varint(text, 1 << 7, (1 << 14) - 1);
        text.put_bytes(&[2 << 3]);
        put_varint(text, 0, (1 << 7) - 1);
    }
}

/// Writes a fragment of a page: a list of products with links and prices.
pub(super) fn html(text: &mut Text) {
    let widget = text.number(0, 999_999);
    text.put_format(format_args!("<div class=\"widget\" id=\"w{widget}\">\n<ul class=\"list\">\n"));
    while !text.is_full() {
        let (product, title, name) =
            (text.number(0, 999_999), text.number(0, 9_999), text.number(0, 9_999));
        let (price, cents) = (text.number(1, 998), text.number(0, 99));
        text.put_format(format_args!(
            "<li class=\"item\"><a href=\"/product/{product}\" title=\"Product {title}\">Product \
             {name}</a><span class=\"price\">{price}.{cents:02}</span></li>\n"
        ));
    }
}

/// Writes a whole number from `low` to `high` as a varint of protobuf: seven bits per byte, the lowest first.
fn put_varint(text: &mut Text, low: u64, high: u64) {
    let mut value = text.number(low, high);
    while value > 0x7F {
        text.put_bytes(&[(value & 0x7F) as u8 | 0x80]);
        value >>= 7;
    }
    text.put_bytes(&[value as u8]);
}

/// The wire types of protobuf, which are the low bits of a field's tag. The type of a varint is 0.
const EIGHT_BYTES: u8 = 1;
const LENGTH_FOLLOWS: u8 = 2;
