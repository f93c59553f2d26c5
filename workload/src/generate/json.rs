//! Generates an indented JSON array of records with a fixed set of fields.

use super::text::Text;

pub(super) fn generate(mut text: Text) -> Vec<u8> {
    text.put("{\n  \"entries\": [\n");
    while !text.is_full() {
        record(&mut text);
    }
    text.finish()
}

fn record(text: &mut Text) {
    let (name, other) = (text.rare_word(), text.word());
    let (kind, region) = (
        text.one_of(&["active", "historic", "extinct", "special"]),
        text.one_of(&["north", "south", "east", "west", "central"]),
    );
    let (id, parent) = (text.number(0, 999), text.number(0, 99));
    text.put_format(format_args!(
        "    {{\n      \"id\": {id},\n      \"code\": \"{region}-{parent:02}\",\n      \
         \"name\": \"{name} {other}\",\n      \"kind\": \"{kind}\",\n      \"scope\": \"I\",\n"
    ));
    if text.chance(0.3) {
        text.put_format(format_args!("      \"common_name\": \"{other}\",\n"));
    }
    text.put_format(format_args!(
        "      \"type\": \"L\",\n      \"parent\": \"{parent}\"\n    }},\n"
    ));
}
