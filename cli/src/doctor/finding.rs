//! A finding: its severity, who can fix it, and how. This module only formats findings. Other modules produce them.

use serde::Serialize;

use crate::terminal::{WIDTH, wrapped};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Severity {
    /// There is no fault.
    Ok,
    /// The fact is worth knowing, but no device of the configuration fails because of it.
    Note,
    /// A device of the configuration does not work.
    Problem,
}

impl Severity {
    /// Returns the severity of a fault in a feature. It depends on whether the feature is needed.
    pub(super) const fn if_needed(needed: bool) -> Self {
        if needed { Severity::Problem } else { Severity::Note }
    }

    const fn word(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Problem => "problem",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// The device or the part of the machine that the finding is about.
    pub(super) about: String,
    pub(super) what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mend: Option<Mend>,
}

/// The way to fix a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Mend {
    /// The person who can fix the fault.
    pub(super) who: String,
    /// The action that this person takes.
    pub(super) how: String,
    /// The commands, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) commands: Vec<String>,
}

impl Finding {
    pub(super) fn new(severity: Severity, about: &str, what: String) -> Self {
        Self { severity, about: about.to_owned(), what, mend: None }
    }

    pub(super) fn mend(self, mend: Mend) -> Self {
        Self { mend: Some(mend), ..self }
    }

    /// Formats the finding for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let about = wrapped(&self.about, ABOUT);
        let mut what = wrapped(&self.what, WIDTH - INDENTATION);
        let (who, commands) = match &self.mend {
            Some(mend) => (format!("{} {}", mend.who, mend.how), &mend.commands[..]),
            None => (String::new(), &[][..]),
        };
        if !who.is_empty() {
            let end = if commands.is_empty() { "." } else { ":" };
            what.extend(wrapped(&format!("{who}{end}"), WIDTH - INDENTATION));
        }
        let commands = commands.iter().flat_map(|command| command.lines());
        what.extend(commands.map(|line| format!("    {line}")));
        let height = what.len().max(about.len());
        let line = |index: usize| {
            let severity = if index == 0 { self.severity.word() } else { "" };
            let about = about.get(index).map_or("", String::as_str);
            let what = what.get(index).map_or("", String::as_str);
            format!("  {severity:<7}  {about:<ABOUT$}  {what}").trim_end().to_owned()
        };
        (0..height).map(line).collect()
    }
}

impl Mend {
    /// Creates a fix without commands.
    pub(super) fn text(who: &str, how: String) -> Self {
        Self { who: who.to_owned(), how, commands: Vec::new() }
    }

    /// Creates a fix for an administrator of the machine.
    pub(super) fn root(how: &str, commands: Vec<String>) -> Self {
        Self { who: ADMINISTRATOR.to_owned(), how: how.to_owned(), commands }
    }
}

/// The person who administers the machine.
pub(super) const ADMINISTRATOR: &str = "The machine's administrator";

/// The width of the column with the subject.
const ABOUT: usize = 14;
const INDENTATION: usize = 2 + 7 + 2 + ABOUT + 2;
