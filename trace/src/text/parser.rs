//! Parses words into a draft and records the place of every part. Parsing stops at the first error.
//! The catalog checks whether the content makes sense.

use units::{Nanos, Op};

use super::lexer::{Comment, Lexer, Token};
use super::{KEYWORDS, Place, TextError, is_reserved};
use crate::catalog::Draft;
use crate::condition::{Comparison, Condition};
use crate::fault::hint;
use crate::limits::{CONDITION_UNITS_MAX, DEPTH_MAX, NAME_BYTES_MAX, TEXT_BYTES_MAX};
use crate::payload::{Base, Format, Wrap};
use crate::service::{Service, Stage};
use crate::tree::{Branch, End, Field, FieldKind, Fork, Node, Run, TIME_UNITS_NS, Trace};

/// A parsed text with the places of its parts.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    /// The content of the text.
    pub(crate) draft: Draft,
    pub(crate) fields: Vec<Located>,
    pub(crate) traces: Vec<Located>,
    pub(crate) services: Vec<Located>,
    pub(crate) order: Vec<Item>,
    pub(crate) lines: Vec<SourceLine>,
    pub(crate) comments: Vec<Comment>,
}

/// The places of a part of the draft.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) name: Place,
    /// The places of the part's nodes or stages, in the order of the text.
    pub(crate) nodes: Vec<Place>,
}

/// The kind of an item. [`Parsed`] has the kinds of all items in the order of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    Field,
    Trace,
    Service,
}

/// The part of the source that becomes one line of the canonical layout: the place where the part
/// begins, and the line where it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceLine {
    pub(crate) from: Place,
    pub(crate) end_line: usize,
}

/// Parses a text.
///
/// # Errors
/// Returns the first error.
pub(crate) fn parse(name: &str, text: &str) -> Result<Parsed, TextError> {
    let error = |place: Place, message| TextError {
        file: name.to_owned(),
        line: place.line,
        column: place.column,
        message,
    };
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("{} bytes; at most {TEXT_BYTES_MAX} are read", text.len());
        return Err(error(Place { line: 1, column: 1 }, message));
    }
    let mut lexer = Lexer::new(text);
    let (token, place) = lexer.next();
    let mut parser = Parser {
        lexer,
        token,
        place,
        end_line: 1,
        draft: Draft::default(),
        located: Vec::new(),
        lines: Vec::new(),
        tests: 0,
    };
    let items = parser.file().map_err(|(place, message)| error(place, message))?;
    let (mut fields, mut traces, mut services) = (Vec::new(), Vec::new(), Vec::new());
    for (item, located) in &items {
        match item {
            Item::Field => fields.push(located.clone()),
            Item::Trace => traces.push(located.clone()),
            Item::Service => services.push(located.clone()),
        }
    }
    Ok(Parsed {
        draft: parser.draft,
        fields,
        traces,
        services,
        order: items.into_iter().map(|(item, _)| item).collect(),
        lines: parser.lines,
        comments: parser.lexer.comments,
    })
}

type Wrong = (Place, String);

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token and its place.
    token: Token<'a>,
    place: Place,
    /// The line of the previous token.
    end_line: usize,
    draft: Draft,
    located: Vec<Place>,
    lines: Vec<SourceLine>,
    /// The number of tests in the condition that is being parsed.
    tests: usize,
}

impl<'a> Parser<'a> {
    fn advance(&mut self) -> Token<'a> {
        self.end_line = self.place.line;
        let (token, place) = self.lexer.next();
        self.place = place;
        std::mem::replace(&mut self.token, token)
    }

    fn expected<T>(&self, what: &str) -> Result<T, Wrong> {
        Err((self.place, format!("expected {what}, found {}", self.token.shown())))
    }

    /// Returns the error of [`Parser::expected`], with the most similar of `words` as a hint.
    fn expected_word<T>(&self, what: &str, words: &[&str]) -> Result<T, Wrong> {
        let hint = match self.token {
            Token::Word(word) => hint(word, words.iter().copied()),
            _ => String::new(),
        };
        Err((self.place, format!("expected {what}, found {}{hint}", self.token.shown())))
    }

    fn is(&self, word: &str) -> bool {
        matches!(self.token, Token::Word(found) | Token::Sign(found) if found == word)
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.is(word);
        if found {
            self.advance();
        }
        found
    }

    fn need(&mut self, word: &str) -> Result<(), Wrong> {
        if self.eat(word) { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    fn name(&mut self, what: &str) -> Result<String, Wrong> {
        match self.token {
            Token::Word(word) if is_reserved(word) => {
                let message = format!("expected {what}, found `{word}`, a word of the language");
                Err((self.place, message))
            }
            Token::Word(word) if word.len() > NAME_BYTES_MAX => {
                let message =
                    format!("a name has at most {NAME_BYTES_MAX} bytes, not {}", word.len());
                Err((self.place, message))
            }
            Token::Word(word) => {
                self.advance();
                Ok(word.to_owned())
            }
            _ => self.expected(what),
        }
    }

    /// Records one line of the canonical layout. Its source is the text from `from` to the previous
    /// token.
    fn line(&mut self, from: Place) {
        self.lines.push(SourceLine { from, end_line: self.end_line });
    }

    fn file(&mut self) -> Result<Vec<(Item, Located)>, Wrong> {
        let mut items = Vec::new();
        while self.token != Token::End {
            let from = self.place;
            let item = if self.eat("field") {
                Item::Field
            } else if self.eat("trace") {
                Item::Trace
            } else if self.eat("service") {
                Item::Service
            } else {
                let words = ["field", "trace", "service"];
                return self.expected_word("`field`, `trace` or `service`", &words);
            };
            let name = self.place;
            match item {
                Item::Field => self.field(from)?,
                Item::Trace => self.trace(from)?,
                Item::Service => self.service(from)?,
            }
            items.push((item, Located { name, nodes: std::mem::take(&mut self.located) }));
        }
        Ok(items)
    }

    fn field(&mut self, from: Place) -> Result<(), Wrong> {
        let name = self.name("the field's name")?;
        let kind = if self.eat("flag") {
            FieldKind::Flag
        } else if self.eat("number") {
            FieldKind::Number
        } else {
            return self.expected_word("`flag` or `number`", &["flag", "number"]);
        };
        self.line(from);
        self.draft.fields.push(Field { name, kind });
        Ok(())
    }

    fn trace(&mut self, from: Place) -> Result<(), Wrong> {
        let name = self.name("the trace's name")?;
        self.need("takes")?;
        let takes = self.format()?;
        self.need("{")?;
        self.line(from);
        let body = self.block(0)?;
        self.close()?;
        self.draft.traces.push(Trace { name, takes, body });
        Ok(())
    }

    /// Parses a closing brace and records it as a line.
    fn close(&mut self) -> Result<(), Wrong> {
        let from = self.place;
        self.need("}")?;
        self.line(from);
        Ok(())
    }

    fn format(&mut self) -> Result<Format, Wrong> {
        let from = self.place;
        let mut wraps = Vec::new();
        loop {
            let word = match self.token {
                Token::Word(word) => word,
                _ => "",
            };
            if let Some(wrap) = Wrap::ALL.into_iter().find(|wrap| wrap.name() == word) {
                self.advance();
                self.need("(")?;
                wraps.push(wrap);
                if wraps.len() > Format::WRAPS_MAX {
                    return Err((from, "at most three wraps around the data".to_owned()));
                }
                continue;
            }
            let base = self.base("a format")?;
            for _ in &wraps {
                self.need(")")?;
            }
            let wrapped = |format: Format, wrap: &Wrap| format.within(*wrap).unwrap_or(format);
            return Ok(wraps.iter().rev().fold(Format::new(base), wrapped));
        }
    }

    fn base(&mut self, what: &str) -> Result<Base, Wrong> {
        let found = match self.token {
            Token::Word(word) => Base::ALL.into_iter().find(|base| base.name() == word),
            _ => None,
        };
        let Some(base) = found else {
            let mut words: Vec<&str> = Base::ALL.map(Base::name).to_vec();
            if what == "a format" {
                words.extend(Wrap::ALL.map(Wrap::name));
            }
            return self.expected_word(&format!("{what} ({})", words.join(", ")), &words);
        };
        self.advance();
        Ok(base)
    }

    fn block(&mut self, depth: usize) -> Result<Vec<Node>, Wrong> {
        let mut nodes = Vec::new();
        while !self.is("}") {
            if depth > DEPTH_MAX {
                return Err((self.place, format!("nested {depth} deep; at most {DEPTH_MAX}")));
            }
            nodes.push(self.node(depth)?);
        }
        Ok(nodes)
    }

    fn node(&mut self, depth: usize) -> Result<Node, Wrong> {
        let from = self.place;
        self.located.push(from);
        let word = match self.token {
            Token::Word(word) => word,
            _ => "",
        };
        let node = match word {
            "if" => return self.branch(from, depth).map(Node::Branch),
            "fork" => return self.fork(from, depth).map(Node::Fork),
            "trans" => {
                self.advance();
                let base = self.base("what it is")?;
                self.need("->")?;
                Node::Trans(base, self.base("what it becomes")?)
            }
            "notify" | "tail" | "await" => Node::End(self.end()?),
            _ => match Op::ALL.into_iter().find(|op| op.name() == word) {
                Some(op) => {
                    self.advance();
                    let due = if self.eat("due") { Some(self.time()?) } else { None };
                    Node::Run(Run { op, due })
                }
                None => return self.no_node(),
            },
        };
        self.line(from);
        Ok(node)
    }

    fn no_node<T>(&self) -> Result<T, Wrong> {
        let mut words: Vec<&str> = Op::ALL.map(Op::name).to_vec();
        words.extend(KEYWORDS);
        let what = "an op, `trans`, `if`, `fork`, `notify`, `tail`, `await` or `}`";
        self.expected_word(what, &words)
    }

    fn end(&mut self) -> Result<End, Wrong> {
        if self.eat("notify") {
            return Ok(End::Notify);
        }
        let at_once = self.eat("tail") || !self.eat("await");
        let trace = self.name("the name of the trace that goes on")?;
        if at_once {
            return Ok(End::Tail(trace));
        }
        let within = if self.eat("within") { Some(self.time()?) } else { None };
        Ok(End::Await { trace, within })
    }

    fn branch(&mut self, from: Place, depth: usize) -> Result<Branch, Wrong> {
        self.need("if")?;
        self.tests = 0;
        let condition = self.either(0)?;
        self.need("{")?;
        self.line(from);
        let on_true = self.block(depth + 1)?;
        let from = self.place;
        self.need("}")?;
        if !self.eat("else") {
            self.line(from);
            return Ok(Branch { condition, on_true, on_false: Vec::new() });
        }
        self.need("{")?;
        self.line(from);
        let divider = self.lines.len() - 1;
        let on_false = self.block(depth + 1)?;
        self.close()?;
        if on_false.is_empty() {
            // An empty second arm is not printed.
            self.lines.remove(divider);
        }
        Ok(Branch { condition, on_true, on_false })
    }

    fn fork(&mut self, from: Place, depth: usize) -> Result<Fork, Wrong> {
        self.need("fork")?;
        let (mut arms, mut from) = (Vec::new(), from);
        loop {
            self.need("{")?;
            self.line(from);
            arms.push(self.block(depth + 1)?);
            from = self.place;
            self.need("}")?;
            if self.eat("and") {
                continue;
            }
            let join = self.eat("join");
            self.line(from);
            return Ok(Fork { arms, join });
        }
    }

    fn either(&mut self, depth: usize) -> Result<Condition, Wrong> {
        let mut condition = self.both(depth)?;
        while self.eat("or") {
            condition = condition.or(self.both(depth)?);
        }
        Ok(condition)
    }

    fn both(&mut self, depth: usize) -> Result<Condition, Wrong> {
        let mut condition = self.test(depth)?;
        while self.eat("and") {
            condition = condition.and(self.test(depth)?);
        }
        Ok(condition)
    }

    fn test(&mut self, depth: usize) -> Result<Condition, Wrong> {
        if depth > CONDITION_UNITS_MAX {
            return Err((
                self.place,
                format!("a condition this deep: at most {CONDITION_UNITS_MAX}"),
            ));
        }
        if self.eat("not") {
            return Ok(self.test(depth + 1)?.not());
        }
        if self.eat("(") {
            let condition = self.either(depth + 1)?;
            self.need(")")?;
            return Ok(condition);
        }
        self.tests += 1;
        if self.tests > CONDITION_UNITS_MAX {
            // A chain is as deep as it is long, and each test takes at least one unit of the
            // encoding.
            let max = CONDITION_UNITS_MAX;
            return Err((self.place, format!("a condition of more than {max} tests; {max} fit")));
        }
        let field = self.name("a field, `not` or `(`")?;
        let comparison =
            Comparison::ALL.into_iter().find(|comparison| self.is(comparison.symbol()));
        let Some(comparison) = comparison else { return Ok(Condition::Flag(field)) };
        self.advance();
        let literal = self.number("a number from 0 to 4294967295")?;
        Ok(Condition::Number(field, comparison, literal))
    }

    fn number(&mut self, what: &str) -> Result<u32, Wrong> {
        let number = match self.token {
            Token::Number(text) => text.parse().ok(),
            _ => None,
        };
        let Some(number) = number else { return self.expected(what) };
        self.advance();
        Ok(number)
    }

    fn time(&mut self) -> Result<Nanos, Wrong> {
        let time = match self.token {
            Token::Number(text) => {
                let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let unit = TIME_UNITS_NS.iter().find(|(_, name)| *name == &text[digits.len()..]);
                let count = digits.parse::<u64>().ok();
                unit.zip(count).and_then(|((unit, _), count)| count.checked_mul(*unit))
            }
            _ => None,
        };
        let Some(ns) = time else {
            return self.expected("a time such as 500ns, 20us, 5ms or 1s");
        };
        self.advance();
        Ok(Nanos(ns))
    }

    fn service(&mut self, from: Place) -> Result<(), Wrong> {
        let name = self.name("the service's name")?;
        self.need("{")?;
        self.line(from);
        let path = self.stages(0)?;
        self.close()?;
        self.draft.services.push(Service { name, path });
        Ok(())
    }

    fn stages(&mut self, depth: usize) -> Result<Vec<Stage>, Wrong> {
        let mut path = Vec::new();
        while !self.is("}") {
            if depth > DEPTH_MAX {
                return Err((self.place, format!("nested {depth} deep; at most {DEPTH_MAX}")));
            }
            let from = self.place;
            self.located.push(from);
            if self.eat("parallel") {
                let times = self.number("how many at once")?;
                self.need("{")?;
                self.line(from);
                let inner = self.stages(depth + 1)?;
                self.close()?;
                path.push(Stage::Parallel { times, path: inner });
                continue;
            }
            let stage = if self.eat("cpu") {
                Stage::Cpu
            } else if self.eat("run") {
                self.run()?
            } else {
                let words = ["run", "cpu", "parallel"];
                return self.expected_word("`run`, `cpu`, `parallel` or `}`", &words);
            };
            self.line(from);
            path.push(stage);
        }
        Ok(path)
    }

    fn run(&mut self) -> Result<Stage, Wrong> {
        let trace = self.name("the trace's name")?;
        let mut with = Vec::new();
        if self.eat("with") {
            with.push(self.name("a flag")?);
            while self.eat(",") {
                with.push(self.name("a flag")?);
            }
        }
        Ok(Stage::Run { trace, with })
    }
}
