//! `docs/errors.md` against [`ErrorKind`]: every code with its number, and nothing else.

use std::collections::BTreeSet;

use restante::ErrorKind;

const PAGE: &str = include_str!("../../../docs/errors.md");

/// The rest of the page, below the table.
const JAVASCRIPT: &str = "## In JavaScript alone";

fn codes(section: &str) -> BTreeSet<&str> {
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.split('`').nth(1).unwrap()).collect()
}

#[test]
fn the_page_about_errors_lists_what_javascript_alone_raises() {
    let (_, below) = PAGE.split_once(JAVASCRIPT).unwrap();
    let section = below.split("\n## ").next().unwrap();
    // As `__test__/types` has them, which compares the whole union with what the addon says.
    let raised = ["addon_unavailable", "handler_failed", "server_error"];
    assert_eq!(codes(section), raised.into());
    let known = ErrorKind::ALL.iter().map(|kind| kind.code());
    assert!(known.into_iter().all(|code| !raised.contains(&code)));
}

#[test]
fn the_page_about_errors_lists_every_code_with_its_number() {
    let (table, _) = PAGE.split_once(JAVASCRIPT).unwrap();
    let documented: BTreeSet<(String, String)> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            (cells[1].trim_matches('`').to_owned(), cells[2].to_owned())
        })
        .collect();
    let known = ErrorKind::ALL
        .iter()
        .map(|kind| (kind.code().to_owned(), kind.number().to_string()))
        .collect();
    assert_eq!(documented, known);
}

#[test]
fn the_page_about_errors_names_those_worth_another_try() {
    let start = PAGE.find("Worth another try").unwrap();
    let paragraph = PAGE[start..].split("\n\n").next().unwrap();
    let named: BTreeSet<&str> = paragraph.split('`').skip(1).step_by(2).collect();
    let retryable = ErrorKind::ALL.iter().filter(|kind| kind.is_retryable());
    assert_eq!(named, retryable.map(|kind| kind.code()).collect());
}
