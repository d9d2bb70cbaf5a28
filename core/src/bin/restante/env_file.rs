//! `--env-file`: variables that are read from a file before flags are. One that is set already counts,
//! and so does a flag. Knows no variable by name: flags do.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use restante::server::parse_env_file;
use restante::{Error, ErrorKind, Result};

use super::Cli;

/// Names the file too.
pub(super) const VARIABLE: &str = "RESTANTE_ENV_FILE";
/// Read if it is there and nothing is named.
const DEFAULT: &str = ".env";
const FLAG: &str = "--env-file";

/// The command line, with what the file says where the environment says nothing.
pub(super) fn args() -> Result<Vec<OsString>> {
    let args: Vec<OsString> = std::env::args_os().collect();
    let variables = variables(&args)?;
    Ok(with_variables(args, &variables, |name| {
        std::env::var_os(name).is_some()
    }))
}

fn variables(args: &[OsString]) -> Result<Vec<(String, String)>> {
    let named = named(args).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
    let path = match &named {
        Some(path) => path.as_path(),
        None if Path::new(DEFAULT).exists() => Path::new(DEFAULT),
        None => return Ok(Vec::new()),
    };
    let refused = |why: String| {
        let text = format!("environment file {}: {why}", path.display());
        Error::new(ErrorKind::Config, text)
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| refused(format!("cannot be read: {error}")))?;
    // What stands in the line may be a secret.
    parse_env_file(&text).map_err(|line| refused(format!("line {line} is not KEY=VALUE")))
}

/// The last file that the flag names.
fn named(args: &[OsString]) -> Option<PathBuf> {
    let mut args = args.iter();
    let mut found = None;
    while let Some(arg) = args.next() {
        if arg == FLAG {
            found = args.next().map(PathBuf::from);
        } else if let Some(path) = arg
            .to_str()
            .and_then(|arg| arg.strip_prefix(FLAG)?.strip_prefix('='))
        {
            found = Some(path.into());
        }
    }
    found
}

/// Puts flags behind the name of the command: those on the line come later and count.
fn with_variables(
    mut args: Vec<OsString>,
    variables: &[(String, String)],
    is_set: impl Fn(&OsStr) -> bool,
) -> Vec<OsString> {
    let cli = Cli::command();
    let named = args
        .iter()
        .position(|arg| cli.find_subcommand(arg).is_some());
    let Some(at) = named else {
        return args;
    };
    let Some(command) = cli.find_subcommand(&args[at]) else {
        return args;
    };
    let flags = command.get_arguments().filter_map(|arg| {
        let (variable, flag) = (arg.get_env()?, arg.get_long()?);
        let mut said = variables.iter().rev();
        let (_, value) = said.find(|(name, _)| OsStr::new(name) == variable)?;
        (!is_set(variable)).then(|| OsString::from(format!("--{flag}={value}")))
    });
    let flags: Vec<OsString> = flags.collect();
    args.splice(at + 1..at + 1, flags);
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &[&str]) -> Vec<OsString> {
        line.iter().map(OsString::from).collect()
    }

    #[test]
    fn variables_become_flags_before_those_of_the_line() {
        let variables = [
            ("RESTANTE_PORT".to_owned(), "1".to_owned()),
            ("RESTANTE_HOST".to_owned(), "h".to_owned()),
            ("OTHER".to_owned(), "x".to_owned()),
        ];
        let line = args(&["restante", "serve", "--port", "2"]);
        let all = with_variables(line, &variables, |name| name == "RESTANTE_HOST");
        assert_eq!(all, args(&["restante", "serve", "--port=1", "--port", "2"]));
        let serve = clap::Parser::try_parse_from(all).map(|cli: Cli| cli.command);
        assert!(matches!(serve, Ok(super::super::Command::Serve(serve)) if serve.port == Some(2)));
    }

    #[test]
    fn the_flag_names_its_file_in_both_spellings() {
        let path = |line: &[&str]| named(&args(line));
        assert_eq!(path(&["x", "--env-file", "a"]), Some("a".into()));
        assert_eq!(path(&["x", "--env-file=b", "serve"]), Some("b".into()));
        assert_eq!(path(&["x", "serve"]), None);
    }
}
