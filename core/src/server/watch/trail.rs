//! The names on the way to a file: of whose change it may be another file. Knows no watcher.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// As many links as the system follows.
const MAX_LINKS: usize = 40;

/// Each link on the way, and what stands at the end: the file, or the first name that is missing.
pub(super) fn trail(file: &Path) -> Vec<PathBuf> {
    let parts = |path: &Path| -> VecDeque<OsString> {
        let parts = path.components();
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    let (mut trail, mut here, mut rest) = (Vec::new(), PathBuf::new(), parts(file));
    while let Some(part) = rest.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::Normal(_)) => {}
            Some(Component::ParentDir) => {
                here.pop();
                continue;
            }
            Some(Component::CurDir) | None => continue,
            Some(Component::Prefix(_) | Component::RootDir) => {
                here.push(part);
                continue;
            }
        }
        let next = here.join(&part);
        match next.read_link() {
            Ok(target) if trail.len() < MAX_LINKS => {
                trail.push(next);
                // A target that is absolute takes the place of all before it.
                let mut way = parts(&target);
                way.append(&mut rest);
                rest = way;
                if target.is_absolute() {
                    here = PathBuf::new();
                }
            }
            _ => {
                if rest.is_empty() || !next.exists() {
                    trail.push(next);
                    break;
                }
                here = next;
            }
        }
    }
    trail
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn every_link_on_the_way_and_the_end_of_it_are_named() {
        let folder = TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("releases/one")).unwrap();
        std::fs::write(root.join("releases/one/real.json"), "{}").unwrap();
        symlink("releases/one", root.join("current")).unwrap();
        symlink(
            root.join("releases/../current/real.json"),
            root.join("releases/one/s.json"),
        )
        .unwrap();
        let named = trail(&root.join("current/./s.json"));
        let wanted = [
            "current",
            "releases/one/s.json",
            "current",
            "releases/one/real.json",
        ];
        assert_eq!(named, wanted.map(|name| root.join(name)));
    }

    #[test]
    fn what_is_missing_is_named_where_it_will_come_from() {
        let folder = TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        symlink("later/s.json", root.join("s.json")).unwrap();
        let named = trail(&root.join("s.json"));
        assert_eq!(named, ["s.json", "later"].map(|name| root.join(name)));
        std::fs::create_dir(root.join("later")).unwrap();
        let named = trail(&root.join("s.json"));
        assert_eq!(
            named,
            ["s.json", "later/s.json"].map(|name| root.join(name))
        );
    }

    #[test]
    fn links_in_a_circle_come_to_an_end() {
        let folder = TempDir::new().unwrap();
        symlink("a", folder.path().join("b")).unwrap();
        symlink("b", folder.path().join("a")).unwrap();
        assert!(trail(&folder.path().join("a")).len() > 1);
    }
}
