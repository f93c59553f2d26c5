//! Implements the functions of a service from its schema, without generated code. Each field is
//! looked up in the schema when it is read. Tests compare generated code with this interpreter. It
//! also serves an IDL that was not known at build time.

use crate::command::Code;
use crate::flat::{Build, View};
use crate::functions::{Function, Functions};
use crate::wire::{Wire, Writer, kind};

use super::{Schema, Type};

/// A schema that implements the functions of its service.
#[derive(Clone, Debug)]
pub struct Interpreter(Schema);

impl Interpreter {
    /// Makes the functions of this schema.
    pub fn new(schema: Schema) -> Self {
        Self(schema)
    }

    fn signature(&self, function: u32) -> Result<&super::Signature, Code> {
        self.0.functions.get(function as usize).ok_or(Code::UnknownFunction)
    }

    fn read_struct(
        &self,
        place: usize,
        wire: &mut Wire<'_>,
        to: &mut Build<'_>,
    ) -> Result<usize, Code> {
        let fields = &self.0.structs[place].fields;
        let block = to.block(fields.len())?;
        let mut head = 0;
        loop {
            let (kind, id) = wire.field()?;
            if kind == kind::STOP {
                break;
            }
            let known = |field: &super::Field| field.id == id && field.ty.kind() == kind;
            match fields.iter().position(known) {
                Some(slot) => {
                    self.read(&fields[slot].ty, wire, to, block, slot)?;
                    head |= 1 << slot;
                }
                None => wire.skip(kind)?,
            }
        }
        let missing = |slot: usize| fields[slot].required && head >> slot & 1 == 0;
        if (0..fields.len()).any(missing) {
            return Err(Code::Malformed);
        }
        to.head(block, head);
        Ok(block)
    }

    fn read(
        &self,
        ty: &Type,
        wire: &mut Wire<'_>,
        to: &mut Build<'_>,
        block: usize,
        slot: usize,
    ) -> Result<(), Code> {
        let word = match ty {
            Type::Bool => wire.bool()?,
            Type::Byte => i64::from(wire.byte()? as i8) as u64,
            Type::I16 => i64::from(wire.i16()?) as u64,
            Type::I32 => i64::from(wire.i32()?) as u64,
            Type::I64 | Type::Double => wire.i64()? as u64,
            Type::String => return to.put_bytes(block, slot, wire.string()?),
            Type::Struct(place) => {
                let child = self.read_struct(*place, wire, to)?;
                to.link(block, slot, child);
                return Ok(());
            }
            Type::List(item) | Type::Set(item) => {
                let count = wire.list(item.kind())?;
                return self.read_items(&[item], count, wire, to, (block, slot));
            }
            Type::Map(key, value) => {
                let count = wire.map(key.kind(), value.kind())?;
                return self.read_items(&[key, value], count, wire, to, (block, slot));
            }
        };
        to.put(block, slot, word);
        Ok(())
    }

    fn read_items(
        &self,
        types: &[&Type],
        count: usize,
        wire: &mut Wire<'_>,
        to: &mut Build<'_>,
        parent: (usize, usize),
    ) -> Result<(), Code> {
        let slots = count.checked_mul(types.len()).ok_or(Code::Oversized)?;
        let block = to.block(slots)?;
        for slot in 0..slots {
            self.read(types[slot % types.len()], wire, to, block, slot)?;
        }
        to.head(block, slots as u64);
        to.link(parent.0, parent.1, block);
        Ok(())
    }

    fn write_struct(&self, place: usize, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
        let fields = &self.0.structs[place].fields;
        if fields.iter().enumerate().any(|(slot, field)| field.required && !from.has(slot)) {
            return Err(Code::Malformed);
        }
        for (slot, field) in fields.iter().enumerate().filter(|(slot, _)| from.has(*slot)) {
            out.field(field.ty.kind(), field.id)?;
            self.write(&field.ty, from, slot, out)?;
        }
        out.stop()
    }

    fn write(
        &self,
        ty: &Type,
        from: View<'_>,
        slot: usize,
        out: &mut Writer<'_>,
    ) -> Result<(), Code> {
        match ty {
            Type::Bool => out.byte(u8::from(from.word(slot)? != 0)),
            Type::Byte => out.byte(from.word(slot)? as u8),
            Type::I16 => out.i16(from.word(slot)? as i16),
            Type::I32 => out.i32(from.word(slot)? as i32),
            Type::I64 | Type::Double => out.i64(from.word(slot)? as i64),
            Type::String => out.string(from.string(slot)?),
            Type::Struct(place) => self.write_struct(*place, from.block(slot)?, out),
            Type::List(item) | Type::Set(item) => {
                let list = from.block(slot)?;
                out.list(item.kind(), list.count())?;
                (0..list.count()).try_for_each(|slot| self.write(item, list, slot, out))
            }
            Type::Map(key, value) => {
                let map = from.block(slot)?;
                let count = map.count() / 2;
                out.map(key.kind(), value.kind(), count)?;
                (0..count).try_for_each(|entry| {
                    self.write(key, map, 2 * entry, out)?;
                    self.write(value, map, 2 * entry + 1, out)
                })
            }
        }
    }
}

impl Functions for Interpreter {
    fn service(&self) -> &str {
        &self.0.service
    }

    fn find(&self, name: &[u8]) -> Option<u32> {
        let found = self.0.functions.iter().position(|known| known.name.as_bytes() == name);
        found.map(|index| index as u32)
    }

    fn function(&self, function: u32) -> Option<Function<'_>> {
        let signature = self.signature(function).ok()?;
        Some(Function { name: &signature.name, oneway: signature.oneway })
    }

    fn recv(&self, function: u32, wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code> {
        self.read_struct(self.signature(function)?.args, wire, to)
    }

    fn resp(&self, function: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
        let signature = self.signature(function)?;
        from.check_result(signature.returns)?;
        self.write_struct(signature.result, from, out)
    }

    fn call(&self, function: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code> {
        self.write_struct(self.signature(function)?.args, from, out)
    }

    fn answer(
        &self,
        function: u32,
        wire: &mut Wire<'_>,
        to: &mut Build<'_>,
    ) -> Result<usize, Code> {
        self.read_struct(self.signature(function)?.result, wire, to)
    }
}
