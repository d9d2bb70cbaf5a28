//! Room kept for bad days: a file beside the database that goes when the disk is full, so that
//! acks and trimming can be written, and comes back when there is room again.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::open::beside;

const SIZE: usize = 8 << 20;

/// The file.
#[derive(Debug)]
pub(super) struct Ballast {
    path: PathBuf,
    is_there: bool,
}

impl Ballast {
    /// The ballast of a database; not made yet unless an earlier one is whole.
    pub(super) fn of(database: &Path) -> Self {
        let path = beside(database, ".ballast");
        let is_there = fs::metadata(&path).is_ok_and(|found| found.len() == SIZE as u64);
        Self { path, is_there }
    }

    /// Makes it; whether it is there.
    pub(super) fn take_in(&mut self) -> bool {
        if !self.is_there {
            let written = File::create(&self.path).and_then(|mut file| {
                // Written, not only reserved: some file systems keep no promise of room.
                file.write_all(&vec![0; SIZE])?;
                file.sync_all()
            });
            self.is_there = written.is_ok();
            if !self.is_there {
                self.throw_out();
            }
        }
        self.is_there
    }

    /// Gives its room to the database.
    pub(super) fn throw_out(&mut self) {
        self.is_there = false;
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %self.path.display(), "the ballast file stays");
        }
    }
}
