//! Finds the category of a frame by an ordered list of patterns in a file. The first pattern that matches decides. The
//! patterns are regular expressions over bytes. Every pattern takes time linear in the length of the symbol.

use regex::bytes::{RegexSet, RegexSetBuilder};
use serde::Deserialize;

/// The two tables of \[Accelerometer\] into which samples are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Leaf functions (table 2).
    Leaf,
    /// Functionalities of a service (table 3).
    Functionality,
}

pub(super) const TABLES: usize = 2;

impl Table {
    /// Both tables, in the order of their index.
    pub const ALL: [Table; TABLES] = [Table::Leaf, Table::Functionality];

    /// Returns the word for this value in files of rules.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Leaf => "leaf",
            Table::Functionality => "functionality",
        }
    }
}

/// The frames of a stack to which a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Frames {
    /// Only the frame where the sample was taken.
    Leaf,
    /// Any frame. Everything that a matching function calls also counts for the rule.
    Inclusive,
}

impl Frames {
    /// Returns the word for this value in files of rules.
    pub const fn name(self) -> &'static str {
        match self {
            Frames::Leaf => "leaf",
            Frames::Inclusive => "inclusive",
        }
    }
}

/// The reason why rules cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rules {origin}: {problem}")]
pub struct BadRules {
    /// The file of the rules, or the name of the compiled-in rules.
    pub origin: String,
    /// The problem and its place in the file.
    pub problem: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    leaf: Vec<Rule>,
    #[serde(default)]
    functionality: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub(super) category: String,
    /// A part of the category, such as `free` of memory.
    pub(super) part: Option<String>,
    /// The frames to which the rule applies. The default is the leaf for leaf functions and every frame for
    /// functionalities.
    pub(super) frames: Option<Frames>,
    #[serde(default)]
    symbols: Vec<String>,
    #[serde(default)]
    libraries: Vec<String>,
}

/// The indices of the first rules that match a symbol: one for the symbol as the leaf of a stack, and one for
/// the symbol as any other frame. An index is `NONE` if no rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranks {
    pub(super) as_leaf: u16,
    pub(super) above: u16,
}

pub(super) const NONE: u16 = u16::MAX;

/// The rules of one table.
#[derive(Debug)]
struct Ordered {
    rules: Vec<Rule>,
    symbols: Patterns,
    libraries: Patterns,
}

/// Patterns, each with the index of its rule.
#[derive(Debug)]
struct Patterns {
    set: RegexSet,
    texts: Vec<String>,
    owners: Vec<u16>,
}

/// The ordered rules of both tables.
#[derive(Debug)]
pub struct Rules {
    tables: [Ordered; TABLES],
}

/// One rule that matches a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The table of the rule.
    pub table: Table,
    /// The position of the rule in its table, starting at 1.
    pub place: usize,
    /// The category of the rule.
    pub category: String,
    /// The part of the category, if any.
    pub part: Option<String>,
    /// The frames to which the rule applies.
    pub frames: Frames,
    /// The pattern that matched.
    pub pattern: String,
}

impl Rules {
    /// Returns the rules of `specs/rules/tax.toml`.
    pub fn compiled_in() -> Result<Self, BadRules> {
        Self::new(&[("tax", COMPILED_IN)])
    }

    /// Makes rules from texts, each (origin, TOML). Rules of earlier texts come first. Add [`Rules::text`] as the last
    /// text to extend the compiled-in rules.
    pub fn new(texts: &[(&str, &str)]) -> Result<Self, BadRules> {
        let (mut leaf, mut functionality) = (Vec::new(), Vec::new());
        for (origin, text) in texts {
            let bad = |problem| BadRules { origin: (*origin).to_owned(), problem };
            if text.len() > TEXT_BYTES_MAX {
                return Err(bad(format!("{} bytes; at most {TEXT_BYTES_MAX}", text.len())));
            }
            let file: File = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
            // Each of several texts is first tried alone, so that the error names the file.
            if texts.len() > 1 && *origin != Self::text().0 {
                for rules in [&file.leaf, &file.functionality] {
                    Ordered::new(rules.clone()).map_err(bad)?;
                }
            }
            leaf.extend(file.leaf);
            functionality.extend(file.functionality);
        }
        let origin = texts.first().map_or("", |(origin, _)| origin);
        let all = |rules| {
            Ordered::new(rules).map_err(|problem| BadRules { origin: origin.to_owned(), problem })
        };
        Ok(Self { tables: [all(leaf)?, all(functionality)?] })
    }

    /// Returns the compiled-in rules, as (origin, TOML).
    pub const fn text() -> (&'static str, &'static str) {
        ("tax", COMPILED_IN)
    }

    /// Returns every rule that matches a symbol, in order. For a leaf the first rule of each table decides.
    pub fn explain(&self, symbol: &str, library: &str) -> Vec<Explained> {
        let explained = |table: Table| {
            let rule_set = &self.tables[table as usize];
            let matches = rule_set.matches(symbol.as_bytes(), library.as_bytes());
            let mut found: Vec<Explained> = matches
                .map(|(index, pattern)| {
                    let rule = &rule_set.rules[usize::from(index)];
                    Explained {
                        table,
                        place: usize::from(index) + 1,
                        category: rule.category.clone(),
                        part: rule.part.clone(),
                        frames: rule.frames(table),
                        pattern: pattern.to_owned(),
                    }
                })
                .collect();
            found.sort_by_key(|one| one.place);
            found
        };
        Table::ALL.into_iter().flat_map(explained).collect()
    }

    pub(super) fn ranks(&self, symbol: &[u8], library: &[u8]) -> [Ranks; TABLES] {
        Table::ALL.map(|table| {
            let rule_set = &self.tables[table as usize];
            let mut ranks = Ranks { as_leaf: NONE, above: NONE };
            for (index, _) in rule_set.matches(symbol, library) {
                ranks.as_leaf = ranks.as_leaf.min(index);
                if rule_set.rules[usize::from(index)].frames(table) == Frames::Inclusive {
                    ranks.above = ranks.above.min(index);
                }
            }
            ranks
        })
    }

    pub(super) fn in_table(&self, table: Table) -> &[Rule] {
        &self.tables[table as usize].rules
    }
}

impl Rule {
    pub(super) fn frames(&self, table: Table) -> Frames {
        self.frames.unwrap_or(match table {
            Table::Leaf => Frames::Leaf,
            Table::Functionality => Frames::Inclusive,
        })
    }
}

impl Ordered {
    fn new(rules: Vec<Rule>) -> Result<Self, String> {
        if rules.len() > RULES_MAX {
            return Err(format!("{} rules; at most {RULES_MAX}", rules.len()));
        }
        if let Some(rule) = rules.iter().find(|rule| rule.patterns().next().is_none()) {
            return Err(format!("a rule of {:?} has neither symbols nor libraries", rule.category));
        }
        let symbols = Patterns::new(&rules, |rule| &rule.symbols)?;
        let libraries = Patterns::new(&rules, |rule| &rule.libraries)?;
        Ok(Self { rules, symbols, libraries })
    }

    /// Returns the index of the rule and the text of the pattern for each match.
    fn matches<'a>(
        &'a self,
        symbol: &'a [u8],
        library: &'a [u8],
    ) -> impl Iterator<Item = (u16, &'a str)> {
        let libraries = (!library.is_empty()).then(|| self.libraries.matches(library));
        self.symbols.matches(symbol).chain(libraries.into_iter().flatten())
    }
}

impl Rule {
    fn patterns(&self) -> impl Iterator<Item = &String> {
        self.symbols.iter().chain(&self.libraries)
    }
}

impl Patterns {
    fn new(rules: &[Rule], patterns_of: fn(&Rule) -> &Vec<String>) -> Result<Self, String> {
        let numbered = rules.iter().zip(0u16..);
        let owned = numbered
            .flat_map(|(rule, index)| patterns_of(rule).iter().map(move |one| (one, index)));
        let (texts, owners): (Vec<String>, Vec<u16>) =
            owned.map(|(text, index)| (text.clone(), index)).unzip();
        if texts.len() > PATTERNS_MAX {
            return Err(format!("{} patterns; at most {PATTERNS_MAX}", texts.len()));
        }
        // Symbols are bytes, and no pattern needs Unicode classes.
        let set = RegexSetBuilder::new(&texts).unicode(false).build();
        Ok(Self { set: set.map_err(|error| error.to_string())?, texts, owners })
    }

    fn matches<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (u16, &'a str)> {
        let found = self.set.matches(text);
        found.into_iter().map(move |index| (self.owners[index], self.texts[index].as_str()))
    }
}

const COMPILED_IN: &str = include_str!("../../../specs/rules/tax.toml");
const TEXT_BYTES_MAX: usize = 1 << 20;
const RULES_MAX: usize = 4_096;
const PATTERNS_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    fn first(rules: &Rules, table: Table, symbol: &str) -> Option<String> {
        let explained = rules.explain(symbol, "");
        explained.into_iter().find(|one| one.table == table).map(|one| one.category)
    }

    #[test]
    fn table_2_sorts_the_leaves_one_meets() {
        let rules = Rules::compiled_in().expect("they are ours");
        let expected = [
            ("__memmove_avx_unaligned_erms", "Memory"),
            ("operator new(unsigned long)", "Memory"),
            ("je_malloc_default", "Memory"),
            ("cfree@GLIBC_2.2.5", "Memory"),
            ("__libc_malloc", "Memory"),
            ("__libc_calloc", "Memory"),
            ("__GI___libc_realloc", "Memory"),
            ("__libc_free", "Memory"),
            ("__libc_memalign", "Memory"),
            ("ZSTD_compressBlock_fast", "ZSTD"),
            ("deflate_fast", "ZSTD"),
            ("aesni_gcm_encrypt", "SSL"),
            ("sha256_block_data_order_avx2", "Hashing"),
            ("XXH3_64bits_withSeed", "Hashing"),
            ("XXH64", "Hashing"),
            ("XXH64_update", "Hashing"),
            ("pthread_mutex_lock", "Synchronization"),
            ("mkl_blas_avx2_sgemm_kernel_0", "Math"),
            ("__schedule", "Kernel"),
            ("tcp_sendmsg_locked", "Kernel"),
            ("std::__cxx11::basic_string<char>::append", "C Libraries"),
        ];
        for (symbol, category) in expected {
            assert_eq!(first(&rules, Table::Leaf, symbol).as_deref(), Some(category), "{symbol}");
        }
        assert_eq!(first(&rules, Table::Leaf, "our_own_business_logic"), None);
    }

    #[test]
    fn rules_given_first_win() {
        let custom = r#"
            [[functionality]]
            category = "Application logic"
            frames = "leaf"
            symbols = ['^ZSTD_']
        "#;
        let rules = Rules::new(&[("custom", custom), Rules::text()]).expect("valid");
        let table = Table::Functionality;
        assert_eq!(first(&rules, table, "ZSTD_compress").as_deref(), Some("Application logic"));
        let ranks = rules.ranks(b"ZSTD_compress", b"")[table as usize];
        assert!(ranks.as_leaf < ranks.above && ranks.above != NONE, "{ranks:?}");
    }

    #[test]
    fn libraries_count_where_they_are_known() {
        let rules = Rules::compiled_in().expect("they are ours");
        let explained = rules.explain("[unknown]", "/usr/lib/libzstd.so.1.5.4");
        assert_eq!(explained[0].category, "ZSTD");
        assert!(rules.explain("[unknown]", "").is_empty());
    }

    #[test]
    fn bad_rules_say_where() {
        let bad = [
            ("[[leaf]]\ncategory = \"A\"", "neither symbols nor libraries"),
            ("[[leaf]]\ncategory = \"A\"\nsymbols = ['(']", "unclosed group"),
            ("[[leaf]]\ncategory = \"A\"\nsymbol = ['a']", "unknown field"),
            ("[[leaves]]", "unknown field"),
        ];
        for (text, problem) in bad {
            let error = Rules::new(&[("custom.toml", text)]).expect_err("refused").to_string();
            assert!(error.starts_with("rules custom.toml: ") && error.contains(problem), "{error}");
        }
    }
}
