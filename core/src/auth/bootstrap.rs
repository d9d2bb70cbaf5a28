//! The administrator's secret of a process (admin.md §2.8): from the environment or the env file, made if
//! there is none. Kept apart from all tokens, never stored, never printed; another value and a restart or
//! reload replace it. Called by the registry.

use std::path::{Path, PathBuf};

use super::env_file::{append_env_file, read_env_file};
use super::{AuthSettings, Secret};
use crate::Result;

/// The variable that holds it, unless `auth.admin_token_env` names another.
pub const ADMIN_TOKEN: &str = "RESTANTE_ADMIN_TOKEN";
/// The variable that names the env file, unless `auth.env_file` does.
pub const ENV_FILE: &str = "RESTANTE_ENV_FILE";

/// Where variables of the process come from; tests have their own.
pub type Environment = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What the process was started with.
pub fn process_environment() -> Box<Environment> {
    Box::new(|name| std::env::var(name).ok())
}

/// Finds the secret; makes one if `must_have` and the settings allow it. The environment beats the file.
///
/// # Errors
/// `config` if the env file cannot be read or written; `internal` without random bytes.
pub(super) fn find(
    settings: &AuthSettings,
    environment: &Environment,
    must_have: bool,
) -> Result<Option<Secret>> {
    let name = &*settings.admin_token_env;
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    if let Some(text) = given(environment(name)) {
        return Secret::parse(&text).map(Some);
    }
    let path = match &settings.env_file {
        Some(path) => path.clone(),
        None => given(environment(ENV_FILE)).map_or_else(|| PathBuf::from(".env"), PathBuf::from),
    };
    if let Some(text) = given(in_file(&path, name, settings, environment)?) {
        return Secret::parse(&text).map(Some);
    }
    if !must_have || !settings.auto_admin_token {
        return Ok(None);
    }
    let secret = Secret::mint()?;
    append_env_file(&path, name, secret.expose())?;
    tracing::warn!(
        "there is no administrator: a secret was made and written to {} as {name}",
        path.display()
    );
    Ok(Some(secret))
}

/// An `.env` that nobody asked for may be anything: what cannot be read of it is left alone.
fn in_file(
    path: &Path,
    name: &str,
    settings: &AuthSettings,
    environment: &Environment,
) -> Result<Option<String>> {
    let variables = match read_env_file(path) {
        Ok(variables) => variables,
        Err(_) if settings.env_file.is_none() && environment(ENV_FILE).is_none() => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // The last assignment counts, as in a shell.
    let found = variables
        .into_iter()
        .rfind(|(variable, _)| variable == name);
    Ok(found.map(|(_, value)| value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(path: &Path) -> AuthSettings {
        AuthSettings {
            env_file: Some(path.to_owned()),
            ..AuthSettings::default()
        }
    }

    #[test]
    fn a_secret_is_made_once_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("restante.env");
        let settings = settings(&path);
        assert_eq!(find(&settings, &|_| None, false).unwrap(), None);
        assert!(!path.exists());
        let made = find(&settings, &|_| None, true).unwrap().unwrap();
        assert_eq!(
            find(&settings, &|_| None, true).unwrap(),
            Some(made.clone())
        );
        assert_eq!(find(&settings, &|_| None, false).unwrap(), Some(made));
    }

    #[test]
    fn the_environment_beats_the_file_and_the_last_line_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("restante.env");
        append_env_file(&path, ADMIN_TOKEN, "old").unwrap();
        append_env_file(&path, ADMIN_TOKEN, "new").unwrap();
        let settings = settings(&path);
        let found = find(&settings, &|_| None, true).unwrap().unwrap();
        assert_eq!(found.expose(), "new");
        let environment = |name: &str| (name == ADMIN_TOKEN).then(|| "env".to_owned());
        let found = find(&settings, &environment, true).unwrap().unwrap();
        assert_eq!(found.expose(), "env");
    }

    #[test]
    fn none_is_made_when_the_settings_forbid_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("restante.env");
        let settings = AuthSettings {
            auto_admin_token: false,
            ..settings(&path)
        };
        assert_eq!(find(&settings, &|_| None, true).unwrap(), None);
        assert!(!path.exists());
    }
}
