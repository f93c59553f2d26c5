//! Shows the progress of a long command in one line on standard error, on a terminal only.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress of a command. Clones show the same line.
#[derive(Clone, Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// The moment from which the line may appear, if it is hidden at first.
    shown_from: Option<Instant>,
}

impl Progress {
    /// Shows the progress of `steps` steps from the start.
    pub fn new(steps: u64) -> Self {
        Self::with(ProgressBar::new(steps), None)
    }

    /// Shows the progress of `steps` steps after two seconds, so that a short command shows none.
    pub fn delayed(steps: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        Self::with(bar, Some(Instant::now() + DELAY))
    }

    fn with(bar: ProgressBar, shown_from: Option<Instant>) -> Self {
        let style = ProgressStyle::with_template(TEMPLATE);
        Self { bar: style.map_or(bar.clone(), |style| bar.with_style(style)), shown_from }
    }

    /// Names the part that runs now.
    pub fn set_part(&self, part: impl Into<Cow<'static, str>>) {
        self.bar.set_prefix(part);
    }

    /// Sets the text that says what the part does now.
    pub fn set_message(&self, message: impl Into<Cow<'static, str>>) {
        self.bar.set_message(message);
    }

    /// Returns the part that runs now.
    pub fn part(&self) -> String {
        self.bar.prefix()
    }

    /// Returns the text that says what the part does now.
    pub fn message(&self) -> String {
        self.bar.message()
    }

    /// Starts again from zero, with `steps` steps.
    pub fn restart(&self, steps: u64) {
        self.bar.set_position(0);
        self.bar.set_length(steps);
    }

    /// Adds steps that were not known at the start.
    pub fn expect_more(&self, steps: u64) {
        self.bar.inc_length(steps);
    }

    /// Adds `steps` to the number of finished steps.
    pub fn advance(&self, steps: u64) {
        let is_due = self.shown_from.is_some_and(|at| Instant::now() > at);
        if is_due && self.bar.is_hidden() && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(steps);
    }

    /// Returns the number of finished steps.
    pub fn position(&self) -> u64 {
        self.bar.position()
    }

    /// Sets the number of finished steps.
    pub fn set_position(&self, steps: u64) {
        self.bar.set_position(steps);
    }

    /// Calls `print` while the line is hidden.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Removes the line.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

const TEMPLATE: &str = "{prefix} [{wide_bar}] {percent:>3} % {eta} {msg}";
const DELAY: Duration = Duration::from_secs(2);
