//! Where secrets come from: the environment, a file, a prompt, or chance; never the command line,
//! which other users of the machine can read and which shells remember.
//!
//! What is wrong is said without the secret in it. Called by `args` for what a command carries and by
//! `run` for what signs it.

use std::path::Path;

use super::console::Console;
use super::variables::Variables;
use crate::{Error, ErrorKind, Result};

/// The longest secret that is read from a file, in bytes.
const LONGEST: u64 = 8 << 10;

/// Where a secret is, as an operator writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// `env:NAME`.
    Variable(String),
    /// `file:PATH`, its first line.
    File(String),
    /// `prompt`.
    Prompt,
    /// `generate`: minted, and printed once.
    Generate,
    /// `none`: what is set is cleared.
    Nothing,
}

/// A secret to be sent; printed only if it was minted here.
pub(super) struct Given {
    pub(super) text: String,
    pub(super) is_minted: bool,
}

pub(super) fn usage(message: impl Into<Box<str>>) -> Error {
    Error::new(ErrorKind::Config, message)
}

impl Source {
    /// Reads `--flag SOURCE`. What is none of the words may be the secret itself: it is not repeated.
    pub(super) fn parse(flag: &str, text: &str) -> Result<Self> {
        match text {
            "prompt" => Ok(Self::Prompt),
            "generate" => Ok(Self::Generate),
            "none" => Ok(Self::Nothing),
            _ => match text.split_once(':') {
                Some(("env", name)) if !name.is_empty() => Ok(Self::Variable(name.to_owned())),
                Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.to_owned())),
                _ => Err(usage(format!(
                    "--{flag} takes no secret, which others could see here, but where it is: \
                     env:NAME, file:PATH, prompt, generate or none"
                ))),
            },
        }
    }

    /// The secret; `None` for [`Source::Nothing`].
    pub(super) fn read(
        &self,
        what: &str,
        variables: &Variables,
        console: &mut dyn Console,
    ) -> Result<Option<Given>> {
        let kept = |text| {
            Ok(Some(Given {
                text,
                is_minted: false,
            }))
        };
        match self {
            Self::Nothing => Ok(None),
            Self::Variable(name) => match variables.get(name) {
                Some(text) => kept(text.to_owned()),
                None => Err(usage(format!("the variable {name} is not set"))),
            },
            Self::File(path) => kept(from_file(Path::new(path))?),
            Self::Prompt => kept(prompt(what, console)?),
            Self::Generate => Ok(Some(Given {
                text: mint(32)?,
                is_minted: true,
            })),
        }
    }
}

/// The first line of a file.
pub(super) fn from_file(path: &Path) -> Result<String> {
    let failed = |why: String| usage(format!("{} holds no secret: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if size.len() > LONGEST {
        return Err(failed(format!("it is longer than {LONGEST} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    match text.lines().next() {
        Some(line) if !line.trim().is_empty() => Ok(line.trim().to_owned()),
        _ => Err(failed("it is empty".to_owned())),
    }
}

/// Asks for a secret, if somebody is there.
pub(super) fn prompt(what: &str, console: &mut dyn Console) -> Result<String> {
    if !console.is_attended() {
        return Err(usage(format!("there is no terminal to ask for {what}")));
    }
    let told = console.ask_secret(&format!("{what}: "));
    match told {
        Ok(text) if !text.is_empty() => Ok(text),
        Ok(_) => Err(usage(format!("{what} is empty"))),
        Err(error) => Err(usage(format!("{what} could not be read: {error}"))),
    }
}

/// `bytes` random bytes as hex digits.
pub(super) fn mint(bytes: usize) -> Result<String> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(|error| {
        let text = format!("the machine gives no random bytes: {error}");
        Error::new(ErrorKind::Internal, text)
    })?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
