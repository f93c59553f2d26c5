//! Turns a schema into Rust. The output contains a view and the slot numbers of each struct, a reader and a
//! writer of each struct and container, and the service's functions. It is readable and needs no formatter.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Field, Schema, Struct, Type};

/// Returns the Rust module for a schema. `source` names the IDL file.
pub fn emit(schema: &Schema, source: &str) -> String {
    let mut emitter = Emitter { schema, out: String::new() };
    emitter.head(source);
    emitter.service();
    for (place, described) in schema.structs.iter().enumerate() {
        emitter.view(described);
        emitter.read_struct(place, described);
        emitter.write_struct(place, described);
    }
    for (name, ty) in emitter.containers() {
        emitter.read_container(&name, &ty);
        emitter.write_container(&name, &ty);
    }
    emitter.out
}

struct Emitter<'a> {
    schema: &'a Schema,
    out: String,
}

/// Writes a line. Writing to a `String` never fails.
macro_rules! line {
    ($self:ident, $($argument:tt)*) => {
        writeln!($self.out, $($argument)*).expect("a String takes all")
    };
}

impl Emitter<'_> {
    fn head(&mut self, source: &str) {
        let service = &self.schema.service;
        line!(self, "//! Service `{service}`, generated from {source} by");
        line!(self, "//! `cargo run -p rpc --example generate`. Change the IDL, not this file.");
        line!(self, "");
        line!(self, "use crate::command::Code;");
        line!(self, "use crate::flat::{{Build, View}};");
        line!(self, "use crate::functions::{{Function, Functions}};");
        line!(self, "use crate::wire::{{Wire, Writer, kind}};");
        line!(self, "");
    }

    fn service(&mut self) {
        let service = &self.schema.service;
        line!(self, "/// The functions of `{service}`.");
        line!(self, "#[derive(Clone, Copy, Debug, Default)]");
        line!(self, "pub struct {service};");
        line!(self, "");
        line!(self, "impl {service} {{");
        for (number, function) in self.schema.functions.iter().enumerate() {
            let (name, upper) = (&function.name, constant(&function.name));
            line!(self, "    /// `{name}`.");
            line!(self, "    pub const {upper}: u32 = {number};");
        }
        line!(self, "}}");
        line!(self, "");
        line!(self, "impl Functions for {service} {{");
        line!(self, "    fn service(&self) -> &str {{");
        line!(self, "        \"{service}\"");
        line!(self, "    }}");
        line!(self, "");
        line!(self, "    fn find(&self, name: &[u8]) -> Option<u32> {{");
        line!(self, "        match name {{");
        for (number, function) in self.schema.functions.iter().enumerate() {
            line!(self, "            b\"{}\" => Some({number}),", function.name);
        }
        line!(self, "            _ => None,");
        line!(self, "        }}");
        line!(self, "    }}");
        line!(self, "");
        line!(self, "    fn function(&self, function: u32) -> Option<Function<'_>> {{");
        line!(self, "        match function {{");
        for (number, function) in self.schema.functions.iter().enumerate() {
            let (name, oneway) = (&function.name, function.oneway);
            let described = format!("Function {{ name: \"{name}\", oneway: {oneway} }}");
            line!(self, "            {number} => Some({described}),");
        }
        line!(self, "            _ => None,");
        line!(self, "        }}");
        line!(self, "    }}");
        self.dispatch("recv", READER, "wire, to");
        self.dispatch("resp", WRITER, "from, out");
        self.dispatch("call", WRITER, "from, out");
        self.dispatch("answer", READER, "wire, to");
        line!(self, "}}");
    }

    fn dispatch(&mut self, way: &str, (parameters, result): (&str, &str), arguments: &str) {
        line!(self, "");
        line!(self, "    fn {way}(&self, number: u32, {parameters}) -> {result} {{");
        line!(self, "        match number {{");
        for (number, function) in self.schema.functions.iter().enumerate() {
            let name = snake(&function.name);
            line!(self, "            {number} => {way}_{name}({arguments}),");
        }
        line!(self, "            _ => Err(Code::UnknownFunction),");
        line!(self, "        }}");
        line!(self, "    }}");
    }

    fn view(&mut self, described: &Struct) {
        let name = &described.name;
        line!(self, "");
        line!(self, "/// A block of `{name}`.");
        line!(self, "#[derive(Clone, Copy, Debug)]");
        line!(self, "pub struct {name}<'a>(pub View<'a>);");
        line!(self, "");
        line!(self, "impl<'a> {name}<'a> {{");
        line!(self, "    /// The number of slots in a block of `{name}`.");
        line!(self, "    pub const SLOTS: usize = {};", described.fields.len());
        for (slot, field) in described.fields.iter().enumerate() {
            line!(self, "    /// The number of the slot of field `{}`.", field.name);
            line!(self, "    pub const {}: usize = {slot};", constant(&field.name));
        }
        for (slot, field) in described.fields.iter().enumerate() {
            self.accessor(slot, field);
        }
        line!(self, "}}");
    }

    fn accessor(&mut self, slot: usize, field: &Field) {
        let (ty, value) = match &field.ty {
            Type::Bool => ("bool".into(), format!("get({slot}).map(|word| word != 0)")),
            Type::Byte => ("i8".into(), format!("get({slot}).map(|word| word as i8)")),
            Type::I16 => ("i16".into(), format!("get({slot}).map(|word| word as i16)")),
            Type::I32 => ("i32".into(), format!("get({slot}).map(|word| word as i32)")),
            Type::I64 => ("i64".into(), format!("get({slot}).map(|word| word as i64)")),
            Type::Double => ("f64".into(), format!("get({slot}).map(f64::from_bits)")),
            Type::String => ("&'a [u8]".into(), format!("get_string({slot})")),
            Type::Struct(place) => {
                let name = &self.schema.structs[*place].name;
                (format!("{name}<'a>"), format!("get_block({slot}).map({name})"))
            }
            Type::List(_) | Type::Set(_) | Type::Map(..) => {
                ("View<'a>".into(), format!("get_block({slot})"))
            }
        };
        let kind = if field.required { "the required field" } else { "field" };
        line!(self, "    /// Returns {kind} {}, or None if it is absent.", field.id);
        let head = format!("pub fn {}(self) -> Option<{ty}>", method(&field.name));
        self.braced(4, &head, &[format!("self.0.{value}")]);
    }

    fn read_struct(&mut self, place: usize, described: &Struct) {
        let fields = &described.fields;
        line!(self, "");
        line!(
            self,
            "fn {}(wire: &mut Wire<'_>, to: &mut Build<'_>) -> {} {{",
            self.reader(place),
            READER.1
        );
        line!(self, "    let block = to.block({})?;", fields.len());
        let keyword = if fields.is_empty() { "let" } else { "let mut" };
        line!(self, "    {keyword} head = 0;");
        line!(self, "    loop {{");
        line!(self, "        match wire.field()? {{");
        line!(self, "            (kind::STOP, _) => break,");
        for (slot, field) in fields.iter().enumerate() {
            let mut body = self.read_into(&field.ty, &slot.to_string());
            body.push(format!("head |= {:#x};", 1u64 << slot));
            let head = format!("(kind::{}, {}) =>", kind_name(&field.ty), field.id);
            self.braced(12, &head, &body);
        }
        line!(self, "            (other, _) => wire.skip(other)?,");
        line!(self, "        }}");
        line!(self, "    }}");
        let required = required_bits(fields);
        if required != 0 {
            line!(self, "    if head & {required:#x} != {required:#x} {{");
            line!(self, "        return Err(Code::Malformed);");
            line!(self, "    }}");
        }
        line!(self, "    to.head(block, head);");
        line!(self, "    Ok(block)");
        line!(self, "}}");
    }

    fn write_struct(&mut self, place: usize, described: &Struct) {
        line!(self, "");
        let result = self.schema.functions.iter().find(|known| known.result == place);
        let is_read = result.is_some() || !described.fields.is_empty();
        let from = if is_read { "from" } else { "_" };
        let writer = self.writer(place);
        line!(self, "fn {writer}({from}: View<'_>, out: &mut Writer<'_>) -> {} {{", WRITER.1);
        if let Some(function) = result {
            line!(self, "    from.check_result({})?;", function.returns);
        }
        let required = required_bits(&described.fields);
        if required != 0 {
            line!(self, "    if from.head() & {required:#x} != {required:#x} {{");
            line!(self, "        return Err(Code::Malformed);");
            line!(self, "    }}");
        }
        for (slot, field) in described.fields.iter().enumerate() {
            let kind = format!("out.field(kind::{}, {})?;", kind_name(&field.ty), field.id);
            let value = format!("{}?;", self.write_from(&field.ty, &slot.to_string()));
            self.braced(4, &format!("if from.has({slot})"), &[kind, value]);
        }
        line!(self, "    out.stop()");
        line!(self, "}}");
    }

    fn read_container(&mut self, name: &str, ty: &Type) {
        line!(self, "");
        line!(self, "fn read_{name}(wire: &mut Wire<'_>, to: &mut Build<'_>) -> {} {{", READER.1);
        let slots = match ty {
            Type::Map(key, value) => {
                let (key_kind, value_kind) = (kind_name(key), kind_name(value));
                line!(self, "    let count = wire.map(kind::{key_kind}, kind::{value_kind})?;");
                line!(self, "    let block = to.block(2 * count)?;");
                line!(self, "    for entry in 0..count {{");
                for (ty, slot) in [(key, "2 * entry"), (value, "2 * entry + 1")] {
                    for text in self.read_into(ty, slot) {
                        line!(self, "        {text}");
                    }
                }
                "2 * count"
            }
            Type::List(item) | Type::Set(item) => {
                line!(self, "    let count = wire.list(kind::{})?;", kind_name(item));
                line!(self, "    let block = to.block(count)?;");
                line!(self, "    for slot in 0..count {{");
                for text in self.read_into(item, "slot") {
                    line!(self, "        {text}");
                }
                "count"
            }
            _ => return,
        };
        line!(self, "    }}");
        line!(self, "    to.head(block, ({slots}) as u64);");
        line!(self, "    Ok(block)");
        line!(self, "}}");
    }

    fn write_container(&mut self, name: &str, ty: &Type) {
        line!(self, "");
        line!(self, "fn write_{name}(from: View<'_>, out: &mut Writer<'_>) -> {} {{", WRITER.1);
        match ty {
            Type::Map(key, value) => {
                let (key_kind, value_kind) = (kind_name(key), kind_name(value));
                line!(self, "    let count = from.count() / 2;");
                line!(self, "    out.map(kind::{key_kind}, kind::{value_kind}, count)?;");
                line!(self, "    for entry in 0..count {{");
                line!(self, "        {}?;", self.write_from(key, "2 * entry"));
                line!(self, "        {}?;", self.write_from(value, "2 * entry + 1"));
            }
            Type::List(item) | Type::Set(item) => {
                line!(self, "    let count = from.count();");
                line!(self, "    out.list(kind::{}, count)?;", kind_name(item));
                line!(self, "    for slot in 0..count {{");
                line!(self, "        {}?;", self.write_from(item, "slot"));
            }
            _ => return,
        }
        line!(self, "    }}");
        line!(self, "    Ok(())");
        line!(self, "}}");
    }

    /// Writes statements in braces, on one line if they fit.
    fn braced(&mut self, indent: usize, head: &str, body: &[String]) {
        let line = format!("{:indent$}{head} {{ {} }}", "", body.join(" "));
        if line.len() <= COLUMNS_MAX {
            line!(self, "{line}");
            return;
        }
        line!(self, "{:indent$}{head} {{", "");
        for statement in body {
            line!(self, "{:indent$}    {statement}", "");
        }
        line!(self, "{:indent$}}}", "");
    }

    /// Returns statements that read a value into a slot of `block`.
    fn read_into(&self, ty: &Type, slot: &str) -> Vec<String> {
        let word = match ty {
            Type::Bool => "wire.bool()?",
            Type::Byte => "i64::from(wire.byte()? as i8) as u64",
            Type::I16 => "i64::from(wire.i16()?) as u64",
            Type::I32 => "i64::from(wire.i32()?) as u64",
            Type::I64 | Type::Double => "wire.i64()? as u64",
            Type::String => return vec![format!("to.put_bytes(block, {slot}, wire.string()?)?;")],
            Type::Struct(_) | Type::List(_) | Type::Set(_) | Type::Map(..) => {
                let read = format!("let child = read_{}(wire, to)?;", self.type_name(ty));
                return vec![read, format!("to.link(block, {slot}, child);")];
            }
        };
        vec![format!("to.put(block, {slot}, {word});")]
    }

    /// Returns an expression that writes a value from a slot of `from`.
    fn write_from(&self, ty: &Type, slot: &str) -> String {
        let (method, cast) = match ty {
            Type::Bool => return format!("out.byte(u8::from(from.word({slot})? != 0))"),
            Type::String => return format!("out.string(from.string({slot})?)"),
            Type::Byte => ("byte", "u8"),
            Type::I16 => ("i16", "i16"),
            Type::I32 => ("i32", "i32"),
            Type::I64 | Type::Double => ("i64", "i64"),
            Type::Struct(_) | Type::List(_) | Type::Set(_) | Type::Map(..) => {
                return format!("write_{}(from.block({slot})?, out)", self.type_name(ty));
            }
        };
        format!("out.{method}(from.word({slot})? as {cast})")
    }

    /// Returns all containers by name, including nested ones. The map of names ensures that each is
    /// emitted once.
    fn containers(&self) -> BTreeMap<String, Type> {
        let mut found = BTreeMap::new();
        let mut waiting: Vec<&Type> =
            self.schema.structs.iter().flat_map(|s| &s.fields).map(|field| &field.ty).collect();
        while let Some(ty) = waiting.pop() {
            match ty {
                Type::List(item) | Type::Set(item) => waiting.push(item),
                Type::Map(key, value) => waiting.extend([&**key, &**value]),
                _ => continue,
            }
            found.insert(self.type_name(ty), ty.clone());
        }
        found
    }

    fn type_name(&self, ty: &Type) -> String {
        match ty {
            Type::Struct(place) => snake(&self.schema.structs[*place].name),
            Type::List(item) => format!("list_{}", self.type_name(item)),
            Type::Set(item) => format!("set_{}", self.type_name(item)),
            Type::Map(key, value) => {
                format!("map_{}_{}", self.type_name(key), self.type_name(value))
            }
            scalar => kind_name(scalar).to_lowercase(),
        }
    }

    /// Returns the name of the function that reads a struct. The names for a function's arguments
    /// and result begin with `recv_` and `answer_`.
    fn reader(&self, place: usize) -> String {
        for function in &self.schema.functions {
            let name = snake(&function.name);
            if function.args == place {
                return format!("recv_{name}");
            } else if function.result == place {
                return format!("answer_{name}");
            }
        }
        format!("read_{}", snake(&self.schema.structs[place].name))
    }

    fn writer(&self, place: usize) -> String {
        for function in &self.schema.functions {
            let name = snake(&function.name);
            if function.args == place {
                return format!("call_{name}");
            } else if function.result == place {
                return format!("resp_{name}");
            }
        }
        format!("write_{}", snake(&self.schema.structs[place].name))
    }
}

fn required_bits(fields: &[Field]) -> u64 {
    let bit = |(slot, field): (usize, &Field)| u64::from(field.required) << slot;
    fields.iter().enumerate().map(bit).sum()
}

const fn kind_name(ty: &Type) -> &'static str {
    match ty {
        Type::Bool => "BOOL",
        Type::Byte => "BYTE",
        Type::I16 => "I16",
        Type::I32 => "I32",
        Type::I64 => "I64",
        Type::Double => "DOUBLE",
        Type::String => "STRING",
        Type::Struct(_) => "STRUCT",
        Type::List(_) => "LIST",
        Type::Set(_) => "SET",
        Type::Map(..) => "MAP",
    }
}

/// Turns `StorePost` and `storePost` into `store_post`. A name with underscores keeps its
/// underscores.
fn snake(name: &str) -> String {
    let mut out = String::new();
    let mut after_lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && after_lower {
            out.push('_');
        }
        after_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// Converts a field's name to the name of a method.
fn method(name: &str) -> String {
    let name = snake(name);
    if KEYWORDS.contains(&name.as_str()) { format!("{name}_") } else { name }
}

/// Converts a field's or a function's name to the name of a constant. `SLOTS` gets an underscore,
/// because every struct has a constant of that name.
fn constant(name: &str) -> String {
    let name = snake(name).to_uppercase();
    if name == "SLOTS" { format!("{name}_") } else { name }
}

/// The keywords of Rust, including reserved ones. `snake` turns `Self` into `self`.
const KEYWORDS: [&str; 51] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];
const READER: (&str, &str) = ("wire: &mut Wire<'_>, to: &mut Build<'_>", "Result<usize, Code>");
const WRITER: (&str, &str) = ("from: View<'_>, out: &mut Writer<'_>", "Result<(), Code>");
const COLUMNS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_may_have_names_that_rust_uses() {
        let fields = ["pub", "impl", "let", "Self", "gen", "slots", "plain"].iter().zip(1..);
        let fields: String = fields.map(|(name, id)| format!("{id}: i32 {name} ")).collect();
        let idl = format!("struct Odd {{ {fields} }} service S {{ Odd slots(1: Odd odd) }}");
        let code = emit(&crate::idl::parse(&idl).expect("valid"), "here");
        for name in ["pub_", "impl_", "let_", "self_", "gen_", "slots", "plain"] {
            assert!(code.contains(&format!("    pub fn {name}(self)")), "{name}: {code}");
        }
        let constants = |name: &str| code.matches(&format!("pub const {name}: usize")).count();
        assert_eq!([constants("SLOTS_"), constants("SLOTS"), constants("PUB")], [1, 3, 1]);
    }
}
