//! The command from outside: what it says of wrong flags, where it says it, how it ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_restante"));
    command
        .args(arguments)
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn output(folder: &Path, arguments: &[&str]) -> (Output, String) {
    let output = command(folder, arguments).output().unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    (output, said)
}

fn files(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Runs a broker until it listens, and ends it; what it said.
fn served(folder: &Path, arguments: &[&str]) -> String {
    let serve = [&["serve", "--port", "0"], arguments].concat();
    let mut child = command(folder, &serve).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("listening on") || !said.ends_with('\n') {
        let read = lines.read_line(&mut said).unwrap();
        assert!(read > 0, "it ended: {said}");
    }
    let pid = child.id().to_string();
    let ended = Command::new("kill").arg(&pid).status().unwrap();
    assert!(ended.success());
    lines.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    said
}

#[test]
fn a_source_that_is_none_is_wrong_usage_and_makes_no_file() {
    let folder = TempDir::new().unwrap();
    let import = [
        "store", "import", "--file", "q.sqlite", "--from", "bogus", "x",
    ];
    let (output, said) = output(folder.path(), &import);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(files(folder.path()), [""; 0]);
}

#[test]
fn an_import_that_is_refused_leaves_no_file_behind() {
    let folder = TempDir::new().unwrap();
    let import = ["store", "import", "--file", "q.sqlite"];
    let (lines, said) = output(folder.path(), &import);
    assert_eq!(lines.status.code(), Some(1), "{said}");
    let missing = [&import[..], &["--from", "tyo-mq-sqlite", "none.sqlite"]].concat();
    let (theirs, said) = output(folder.path(), &missing);
    assert_eq!(theirs.status.code(), Some(1), "{said}");
    assert_eq!(files(folder.path()), [""; 0]);
}

#[test]
fn an_import_that_is_refused_leaves_a_database_that_was_there() {
    let folder = TempDir::new().unwrap();
    served(folder.path(), &["--filename", "q.sqlite"]);
    let before = files(folder.path());
    assert!(before.contains(&"q.sqlite".to_owned()), "{before:?}");
    let (refused, said) = output(folder.path(), &["store", "import", "--file", "q.sqlite"]);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert_eq!(files(folder.path()), before);
}

#[test]
fn what_is_no_terminal_gets_no_colours() {
    let folder = TempDir::new().unwrap();
    let said = served(
        folder.path(),
        &["--host", "127.0.0.1", "--storage", "memory"],
    );
    assert!(!said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn a_shutdown_takes_durations_as_all_options_do() {
    let folder = TempDir::new().unwrap();
    for grace in ["2s", "500ms", "3"] {
        let said = served(folder.path(), &["--storage", "memory", "--grace", grace]);
        assert!(said.contains("stopping"), "{grace}: {said}");
    }
    let serve = ["serve", "--port", "0", "--storage", "memory"];
    for wrong in ["-1", "soon", "5 minutes"] {
        let grace = format!("--grace={wrong}");
        let (refused, said) = output(folder.path(), &[&serve[..], &[&grace]].concat());
        assert_eq!(refused.status.code(), Some(2), "{wrong}: {said}");
    }
}

#[test]
fn who_listens_for_everybody_is_told_so_once_and_on_this_machine_alone_never() {
    let folder = TempDir::new().unwrap();
    let count = |said: &str| said.matches("anybody who reaches port").count();
    let all = served(folder.path(), &["--storage", "memory"]);
    assert_eq!(count(&all), 1, "{all}");
    let local = ["--storage", "memory", "--host", "127.0.0.1"];
    assert_eq!(count(&served(folder.path(), &local)), 0);
}

#[test]
fn an_option_that_the_store_does_not_have_is_told() {
    let folder = TempDir::new().unwrap();
    let memory = ["--storage", "memory", "--filename", "queue.sqlite"];
    let said = served(folder.path(), &memory);
    let warning = "option storage_options.filename is unknown and ignored";
    assert_eq!(said.matches(warning).count(), 1, "{said}");
    assert_eq!(files(folder.path()), [""; 0]);
}
