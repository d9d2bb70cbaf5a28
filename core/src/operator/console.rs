//! Where an operator reads and answers: a port, and the terminal behind it.
//!
//! Results go to standard output, questions and what went wrong to standard error, so that a script
//! gets results alone. A secret is asked for without echo. Knows no command.

use std::io::{self, BufRead, IsTerminal, Write};

/// What a command says and asks. The real one is [`Terminal`]; tests answer by themselves.
pub trait Console: Send {
    /// Whether somebody is there to be asked.
    fn is_attended(&self) -> bool;

    /// Asks, and reads a line without its end.
    ///
    /// # Errors
    /// What the input says; `UnexpectedEof` when it has ended.
    fn ask(&mut self, question: &str) -> io::Result<String>;

    /// The same, without echo.
    ///
    /// # Errors
    /// As [`Console::ask`].
    fn ask_secret(&mut self, question: &str) -> io::Result<String>;

    /// A line of results.
    ///
    /// # Errors
    /// What the output says.
    fn say(&mut self, line: &str) -> io::Result<()>;

    /// A line for people that is no result.
    fn note(&mut self, line: &str);
}

/// The standard streams of the process.
#[derive(Debug, Default)]
pub struct Terminal;

impl Console for Terminal {
    fn is_attended(&self) -> bool {
        io::stdin().is_terminal()
    }

    fn ask(&mut self, question: &str) -> io::Result<String> {
        let mut error = io::stderr().lock();
        write!(error, "{question}")?;
        error.flush()?;
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_end_matches(['\r', '\n']).len());
        Ok(line)
    }

    fn ask_secret(&mut self, question: &str) -> io::Result<String> {
        rpassword::prompt_password(question)
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        writeln!(io::stdout().lock(), "{line}")
    }

    fn note(&mut self, line: &str) {
        // Without standard error nobody wants to know.
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}
