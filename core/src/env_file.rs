//! Texts of `KEY=VALUE` lines (admin.md §5.3), read and written alike. Knows no variable by name and no file.

/// The variables of a text, in their order. Blank lines and lines that begin with `#` are skipped, as
/// is `export ` before a name. A value in double quotes knows `\\`, `\"`, `\n`, `\r` and `\t`; one in single quotes
/// is taken as it stands.
///
/// # Errors
/// The number of the first line that is none of that, from 1.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, usize> {
    let mut variables = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parsed = variable(line.strip_prefix("export ").unwrap_or(line));
        variables.push(parsed.ok_or(at + 1)?);
    }
    Ok(variables)
}

fn variable(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    let inside = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    let value = match value.chars().next() {
        Some('\'') => inside('\'')?.to_owned(),
        Some('"') => unescape(inside('"')?)?,
        _ => value.to_owned(),
    };
    Some((name.to_owned(), value))
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        plain.push(match char {
            '\\' => match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            },
            // An end before the end.
            '"' => return None,
            other => other,
        });
    }
    Some(plain)
}

/// A value as [`parse`] reads it back, in double quotes.
pub fn quote(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    for char in value.chars() {
        match char {
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '"' | '\\' => quoted.extend(['\\', char]),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
