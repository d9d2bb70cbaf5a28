//! What only the inside shows: whether the rows fit together.

use super::line::Nature;
use super::*;

/// What a store holds, in numbers.
#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) queued: u64,
    pub(crate) logs: usize,
    pub(crate) wakes: usize,
    /// Bodies whose references are not as many as the rows that refer to them.
    pub(crate) unfit: i64,
}

const UNFIT: &str = "
    WITH used(mid) AS (
      SELECT mid FROM entry UNION ALL SELECT mid FROM exception
      UNION ALL SELECT mid FROM dead UNION ALL SELECT mid FROM delayed),
    counted(mid, n) AS (SELECT mid, count(*) FROM used GROUP BY mid)
    SELECT (SELECT count(*) FROM body LEFT JOIN refs USING (mid) LEFT JOIN counted USING (mid)
            WHERE coalesce(refs.n, 1) IS NOT counted.n)
         + (SELECT count(*) FROM counted WHERE mid NOT IN (SELECT mid FROM body))
         + (SELECT count(*) FROM refs WHERE n < 2)";

impl SqliteStore {
    /// A command that fails.
    pub(crate) fn fail_once(&self) -> Pending<()> {
        self.call(Nature::Write, |core| {
            core.db.run("INSERT INTO no_such_table VALUES (1)", []);
            Ok(())
        })
    }

    /// A look inside.
    pub(crate) fn inspect(&self) -> Pending<Inside> {
        self.call(Nature::Read, |core| {
            let state = &core.state;
            Ok(Inside {
                queued: state.realms.values().map(|realm| realm.queued).sum(),
                logs: state.logs.len(),
                wakes: state.wakes.len(),
                unfit: core.db.row(UNFIT, [], |row| row.get(0)).unwrap_or(-1),
            })
        })
    }
}
