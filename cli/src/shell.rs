//! `rebate completions` and `rebate man`: generate the files that a package installs with the binary, from
//! the definitions of the flags.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::terminal::{CliError, print, print_line};

/// The flags of `rebate completions`.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS)]
pub(crate) struct Completions {
    /// Shell for which the script is printed.
    #[arg(value_enum)]
    shell: Shell,
}

/// The flags of `rebate man`.
#[derive(Debug, Args)]
#[command(after_help = PAGES)]
pub(crate) struct ManPages {
    /// Directory for the pages. It is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Completions {
    /// Prints the completions of `command`.
    pub(crate) fn run(&self, mut command: Command) {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "rebate", &mut script);
        print(script);
    }
}

impl ManPages {
    /// Writes a page for `command` and each of its subcommands.
    ///
    /// # Errors
    /// A page cannot be written.
    pub(crate) fn run(&self, command: Command) -> Result<(), CliError> {
        let unwritten = |error| CliError::Failed(format!("--out {}: {error}", self.out.display()));
        std::fs::create_dir_all(&self.out).map_err(unwritten)?;
        // The pages of `rebate help` would repeat all other pages.
        let command = command.disable_help_subcommand(true);
        clap_mangen::generate_to(command, &self.out).map_err(unwritten)?;
        print_line(&format!("wrote the man pages to {}", self.out.display()));
        Ok(())
    }
}

const COMPLETIONS: &str = "Examples:
  rebate completions bash > /etc/bash_completion.d/rebate
  rebate completions zsh > ~/.zfunc/_rebate
  rebate completions fish > ~/.config/fish/completions/rebate.fish";

const PAGES: &str = "Examples:
  rebate man --out /usr/local/share/man/man1
  rebate man --out pages && man pages/rebate-serve.1";
