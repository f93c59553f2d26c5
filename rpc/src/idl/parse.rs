//! Turns the text of an IDL into its schema. A name is known only after its declaration, so
//! recursion cannot be written.

use std::collections::HashMap;

use super::lex::{Token, tokens};
use super::{FIELDS_MAX, Field, IdlError, Schema, Signature, Struct, Type};

/// Parses an IDL with one service.
pub fn parse(text: &str) -> Result<Schema, IdlError> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        names: HashMap::new(),
        schema: Schema { service: String::new(), structs: Vec::new(), functions: Vec::new() },
    };
    while !parser.is_at_end() {
        parser.definition()?;
    }
    if parser.schema.functions.is_empty() {
        return Err(parser.error("a service with functions is missing"));
    }
    Ok(parser.schema)
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    names: HashMap<String, Type>,
    schema: Schema,
}

impl Parser {
    fn definition(&mut self) -> Result<(), IdlError> {
        let word = self.word("a definition")?;
        match word.as_str() {
            "namespace" => {
                if !self.mark('*') {
                    self.word("a language")?;
                }
                self.word("a name").map(|_| ())
            }
            "typedef" => {
                let ty = self.ty()?;
                let name = self.word("a name")?;
                self.name(name, ty)
            }
            "enum" => self.enumeration(),
            "struct" | "exception" => {
                let name = self.word("a name")?;
                self.expect('{')?;
                let fields = self.fields('}')?;
                let place = self.add(name.clone(), fields)?;
                self.name(name, Type::Struct(place))
            }
            "service" => self.service(),
            other => Err(self.error(&format!("{other} is not supported"))),
        }
    }

    fn enumeration(&mut self) -> Result<(), IdlError> {
        let name = self.word("a name")?;
        self.expect('{')?;
        while !self.mark('}') {
            self.word("a value")?;
            if self.mark('=') {
                let number = self.number("a number")?;
                i32::try_from(number).map_err(|_| self.error("an enum's values have 32 bits"))?;
            }
            self.separator();
        }
        self.name(name, Type::I32)
    }

    fn service(&mut self) -> Result<(), IdlError> {
        if !self.schema.service.is_empty() {
            return Err(self.error("a second service"));
        }
        self.schema.service = self.word("a name")?;
        self.expect('{')?;
        while !self.mark('}') {
            self.function()?;
            self.separator();
        }
        Ok(())
    }

    fn function(&mut self) -> Result<(), IdlError> {
        let oneway = self.keyword("oneway");
        let returns = !self.keyword("void");
        let mut result = Vec::new();
        if returns {
            let ty = self.ty()?;
            result.push(Field { id: 0, name: "success".into(), ty, required: false });
        }
        let name = self.word("a function")?;
        if self.schema.functions.iter().any(|function| function.name == name) {
            return Err(self.error(&format!("a second function {name}")));
        }
        self.expect('(')?;
        let args = self.fields(')')?;
        if self.keyword("throws") {
            self.expect('(')?;
            result.extend(self.fields(')')?);
        }
        if oneway && !result.is_empty() {
            return Err(self.error("a oneway function returns and throws nothing"));
        }
        if result.len() > FIELDS_MAX {
            return Err(self.error(&format!("a result of more than {FIELDS_MAX} fields")));
        }
        let args = self.add(format!("{name}Args"), args)?;
        let result = self.add(format!("{name}Result"), result)?;
        self.schema.functions.push(Signature { name, args, result, returns, oneway });
        Ok(())
    }

    fn fields(&mut self, end: char) -> Result<Vec<Field>, IdlError> {
        let mut fields: Vec<Field> = Vec::new();
        while !self.mark(end) {
            let id = self.number("a field's number")?;
            let id = i16::try_from(id).ok().filter(|id| *id > 0);
            let id = id.ok_or_else(|| self.error("a field's number is 1 to 32767"))?;
            self.expect(':')?;
            let required = self.keyword("required");
            if !required {
                self.keyword("optional");
            }
            let ty = self.ty()?;
            let name = self.word("a field")?;
            if fields.iter().any(|field| field.id == id || field.name == name) {
                return Err(self.error(&format!("a second field {id}, or named {name}")));
            }
            fields.push(Field { id, name, ty, required });
            self.separator();
        }
        if fields.len() > FIELDS_MAX {
            return Err(self.error(&format!("more than {FIELDS_MAX} fields")));
        }
        Ok(fields)
    }

    fn ty(&mut self) -> Result<Type, IdlError> {
        let word = self.word("a type")?;
        Ok(match word.as_str() {
            "bool" => Type::Bool,
            "byte" | "i8" => Type::Byte,
            "i16" => Type::I16,
            "i32" => Type::I32,
            "i64" => Type::I64,
            "double" => Type::Double,
            "string" | "binary" => Type::String,
            "list" | "set" => {
                self.expect('<')?;
                let item = Box::new(self.ty()?);
                self.expect('>')?;
                if word == "list" { Type::List(item) } else { Type::Set(item) }
            }
            "map" => {
                self.expect('<')?;
                let key = Box::new(self.ty()?);
                self.expect(',')?;
                let value = Box::new(self.ty()?);
                self.expect('>')?;
                Type::Map(key, value)
            }
            name => {
                let known = self.names.get(name).cloned();
                known.ok_or_else(|| self.error(&format!("{name} is not declared before")))?
            }
        })
    }

    fn add(&mut self, name: String, fields: Vec<Field>) -> Result<usize, IdlError> {
        if self.schema.structs.iter().any(|known| known.name == name) {
            return Err(self.error(&format!("a second {name}")));
        }
        self.schema.structs.push(Struct { name, fields });
        Ok(self.schema.structs.len() - 1)
    }

    fn name(&mut self, name: String, ty: Type) -> Result<(), IdlError> {
        let error = self.error(&format!("a second {name}"));
        self.names.insert(name, ty).map_or(Ok(()), |_| Err(error))
    }

    fn is_at_end(&self) -> bool {
        self.at == self.tokens.len()
    }

    fn next(&mut self) -> Option<Token> {
        let (_, token) = self.tokens.get(self.at)?;
        self.at += 1;
        Some(token.clone())
    }

    fn word(&mut self, what: &str) -> Result<String, IdlError> {
        match self.next() {
            Some(Token::Word(word)) => Ok(word),
            _ => Err(self.error(&format!("{what} is missing"))),
        }
    }

    fn number(&mut self, what: &str) -> Result<i64, IdlError> {
        match self.next() {
            Some(Token::Number(number)) => Ok(number),
            _ => Err(self.error(&format!("{what} is missing"))),
        }
    }

    fn keyword(&mut self, keyword: &str) -> bool {
        self.skip_if(|token| matches!(token, Token::Word(word) if word == keyword))
    }

    fn mark(&mut self, mark: char) -> bool {
        self.skip_if(|token| *token == Token::Mark(mark))
    }

    fn separator(&mut self) {
        let _ = self.mark(',') || self.mark(';');
    }

    fn expect(&mut self, mark: char) -> Result<(), IdlError> {
        if self.mark(mark) { Ok(()) } else { Err(self.error(&format!("{mark:?} is missing"))) }
    }

    fn skip_if(&mut self, is: impl Fn(&Token) -> bool) -> bool {
        let found = self.tokens.get(self.at).is_some_and(|(_, token)| is(token));
        self.at += usize::from(found);
        found
    }

    /// Returns an error at the current token, or at the last token if there are no more.
    fn error(&self, what: &str) -> IdlError {
        let at = self.at.min(self.tokens.len().saturating_sub(1));
        let line = self.tokens.get(at).map_or(1, |(line, _)| *line);
        IdlError { line, what: what.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_refused_by_its_line() {
        let cases = [
            ("", 1, "a service with functions is missing"),
            ("include \"a\"", 1, "'\"' has no meaning here"),
            ("\nunion A {}", 2, "union is not supported"),
            ("struct A {\n 1: A next }", 2, "A is not declared before"),
            ("struct A { 1: i32 a\n 1: i32 b }", 2, "a second field 1, or named b"),
            ("struct A { 0: i32 a }", 1, "a field's number is 1 to 32767"),
            ("struct A { i32 a }", 1, "a field's number is missing"),
            ("service S { void f() void f() }", 1, "a second function f"),
            ("service S { oneway i32 f() }", 1, "a oneway function returns and throws nothing"),
            ("/* ", 1, "a comment without its end"),
            ("struct A {} struct A {}", 1, "a second A"),
            ("enum A { B = 3000000000 }", 1, "an enum's values have 32 bits"),
        ];
        for (text, line, what) in cases {
            assert_eq!(parse(text), Err(IdlError { line, what: what.into() }), "{text}");
        }
    }

    #[test]
    fn more_fields_than_a_head_has_bits_are_refused() {
        let fields: String = (1..=65).map(|id| format!("{id}: i32 f{id} ")).collect();
        let error = parse(&format!("struct A {{ {fields} }}")).expect_err("too many");
        assert_eq!(error.what, "more than 64 fields");
    }
}
