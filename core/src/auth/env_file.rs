//! The env file of a process: read whole, appended to, for its owner's eyes only (admin.md §2.8). What
//! its lines look like is [`crate::env_file`]'s business. Called by `bootstrap`, and by whoever starts a
//! process.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind as IoKind, Write};
use std::path::Path;

use crate::{Error, ErrorKind, Result, env_file};

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
    env_file::parse(&text).map_err(|line| {
        let message = format!("{}, line {line}: not NAME=value", path.display());
        Error::new(ErrorKind::Config, message)
    })
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
        file.write_all(format!("{gap}{name}={}\n", env_file::quote(value)).as_bytes())?;
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
