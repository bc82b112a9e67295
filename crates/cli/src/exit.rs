//! Exit codes: one table for every subcommand, shown by `holdfast --help`.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It is done; of a check: all is well.
    Done,
    /// It failed, or a check found a problem.
    Failed,
    /// The command line is wrong; of `doctor`: the machine could not be examined.
    Usage,
    /// The reader of standard output has closed it: 128 and SIGPIPE, as a shell reports it.
    ClosedPipe,
}

/// What `holdfast --help` shows below the commands.
pub const HELP: &str = "\
Example:
  holdfast serve --data ./holdfast-data
  psql -h 127.0.0.1 -p 5433 -U holdfast

Exit codes of every command:
  0    done; of check, standby check, archive verify and doctor: all is well
  1    an error (the message is on stderr), or a check found a problem
  2    wrong usage; of doctor also: the machine could not be examined
  141  the reader of standard output closed it (holdfast doctor --json | head)";

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::ClosedPipe => 141,
        }
    }

    /// The end of a check.
    pub fn of_check(all_is_well: bool) -> Exit {
        if all_is_well { Exit::Done } else { Exit::Failed }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_code() {
        for exit in [Exit::Done, Exit::Failed, Exit::Usage, Exit::ClosedPipe] {
            assert!(HELP.lines().any(|line| line.trim_start().starts_with(&format!("{} ", exit.code()))), "{exit:?}");
        }
    }
}
