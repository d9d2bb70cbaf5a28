//! Files of `NAME="value"` lines (admin.md §5.3): read and written alike, for the owner's eyes only.
//!
//! A value in double quotes has `\"`, `\\` and `\n` undone, in single quotes nothing; unquoted it ends with
//! the line, trimmed. Knows no variable. Called by `bootstrap`, and by whoever starts a process.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind as IoKind, Write};
use std::path::Path;

use crate::{Error, ErrorKind, Result};

fn failed(path: &Path, what: &str, cause: &std::io::Error) -> Error {
    let message = format!("the file {} cannot be {what}", path.display());
    Error::new(ErrorKind::Config, message).caused_by(cause.to_string())
}

/// The variables of a file in its order; a file that is not there has none.
///
/// # Errors
/// `config` if it cannot be read, or for a line that is no assignment, by its number.
pub fn read_env_file(path: &Path) -> Result<Vec<(String, String)>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == IoKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(path, "read", &error)),
    };
    let mut variables = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let assignment = line
            .split_once('=')
            .map(|(name, value)| (name.trim(), value.trim()));
        match assignment {
            Some((name, value)) if !name.is_empty() && !name.contains(char::is_whitespace) => {
                variables.push((name.to_owned(), unquoted(value)));
            }
            _ => {
                let message = format!("{}, line {}: not NAME=value", path.display(), number + 1);
                return Err(Error::new(ErrorKind::Config, message));
            }
        }
    }
    Ok(variables)
}

fn unquoted(value: &str) -> String {
    let inside = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(plain) = inside('\'') {
        return plain.to_owned();
    }
    let Some(quoted) = inside('"') else {
        return value.to_owned();
    };
    let mut text = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, false) => text.push(c),
            (_, true) => match chars.next() {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some(c @ ('"' | '\\')) => text.push(c),
                Some(other) => text.extend(['\\', other]),
                None => text.push('\\'),
            },
        }
    }
    text
}

fn quoted(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    text.push('"');
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

/// Appends a variable, makes the file if it is not there, and lets nobody but its owner read it.
///
/// # Errors
/// `config` if it cannot be written.
pub fn append_env_file(path: &Path, name: &str, value: &str) -> Result<()> {
    let append = || -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        own(&file)?;
        let text = fs::read_to_string(path)?;
        let gap = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        file.write_all(format!("{gap}{name}={}\n", quoted(value)).as_bytes())?;
        file.sync_all()
    };
    append().map_err(|error| failed(path, "written", &error))
}

#[cfg(unix)]
fn own(file: &File) -> std::io::Result<()> {
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
}

#[cfg(not(unix))]
fn own(_: &File) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_assignments_comments_or_refused_by_their_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".env");
        assert_eq!(read_env_file(&path).unwrap(), []);
        fs::write(
            &path,
            "# c\n\nA=1\nexport B = 'x\\n'\nC=\"a\\\"b\\\\\"\nD=\n",
        )
        .unwrap();
        let pairs = [("A", "1"), ("B", "x\\n"), ("C", "a\"b\\"), ("D", "")];
        let wanted: Vec<_> = pairs.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        assert_eq!(read_env_file(&path).unwrap(), wanted);
        fs::write(&path, "A=1\nhunter2\n").unwrap();
        let error = read_env_file(&path).unwrap_err();
        assert!(error.message().contains("line 2") && !error.message().contains("hunter2"));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_everybody_could_read_is_its_owners_alone_afterwards() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".env");
        fs::write(&path, "A=1").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        append_env_file(&path, "B", "2").unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(read_env_file(&path).unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(value in "[^\0]{0,40}") {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(".env");
            append_env_file(&path, "A", &value).unwrap();
            append_env_file(&path, "B", "1").unwrap();
            prop_assert_eq!(&read_env_file(&path).unwrap()[0].1, &value);
        }
    }
}
