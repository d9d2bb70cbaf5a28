//! The environment of a command: the process's own, and a file beneath it. Knows no name of a
//! variable but the one that names the file.

use std::collections::HashMap;
use std::path::Path;

use crate::Result;
use crate::auth::read_env_file;

/// The file that is read where none is named, if it is there.
const USUAL_FILE: &str = ".env";

/// Names and values; empty ones are as good as none.
#[derive(Clone, Default)]
pub struct Variables(HashMap<String, String>);

impl std::fmt::Debug for Variables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Some are secrets.
        write!(f, "Variables({})", self.0.len())
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        Self(pairs.map(|(n, v)| (n.into(), v.into())).collect())
    }
}

impl Variables {
    /// Those of this process; what is no UTF-8 is left out.
    pub fn of_process() -> Self {
        let all = std::env::vars_os();
        all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// A variable that is set to something.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?;
        (!value.is_empty()).then_some(value)
    }

    /// The first of several that is set.
    pub(super) fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Adds those of a file; what is set already wins. A file that is named must be there.
    pub(super) fn with_file(mut self, named: Option<&Path>) -> Result<Self> {
        let said = self.get("RESTANTE_ENV_FILE").map(ToOwned::to_owned);
        let path = named.or(said.as_deref().map(Path::new));
        if let Some(path) = path.filter(|path| !path.exists()) {
            let text = format!("there is no file {}", path.display());
            return Err(super::secrets::usage(text));
        }
        for (name, value) in read_env_file(path.unwrap_or(Path::new(USUAL_FILE)))? {
            let is_unset = self.get(&name).is_none();
            if is_unset {
                self.0.insert(name, value);
            }
        }
        Ok(self)
    }
}
