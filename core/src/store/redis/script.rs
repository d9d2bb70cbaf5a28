//! The scripts and how a call of one looks on the wire. Knows no connection.

use std::sync::LazyLock;

use redis::Cmd;

use super::args::Args;

/// A script; one call is one atomic step of one realm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    Begin,
    Append,
    Change,
    Queues,
    Read,
    Maintain,
    Tell,
    Copy,
}

impl Script {
    /// Whether it only looks.
    pub(super) fn is_look(self) -> bool {
        matches!(self, Self::Read | Self::Tell)
    }
}

/// How many there are.
pub(super) const SCRIPTS: usize = 8;

const BEGIN: &str = concat!(include_str!("lua/base.lua"), include_str!("lua/begin.lua"));
const APPEND: &str = concat!(
    include_str!("lua/base.lua"),
    include_str!("lua/writing.lua"),
    include_str!("lua/standing.lua"),
    include_str!("lua/marks.lua"),
    include_str!("lua/delayed.lua"),
    include_str!("lua/append.lua"),
);
const CHANGE: &str = concat!(
    include_str!("lua/base.lua"),
    include_str!("lua/writing.lua"),
    include_str!("lua/standing.lua"),
    include_str!("lua/letters.lua"),
    include_str!("lua/change.lua"),
);
const QUEUES: &str = concat!(
    include_str!("lua/base.lua"),
    include_str!("lua/writing.lua"),
    include_str!("lua/standing.lua"),
    include_str!("lua/letters.lua"),
    include_str!("lua/marks.lua"),
    include_str!("lua/delayed.lua"),
    include_str!("lua/queues.lua"),
);
const READ: &str = concat!(
    include_str!("lua/base.lua"),
    include_str!("lua/reading.lua"),
    include_str!("lua/standing.lua"),
    include_str!("lua/read.lua"),
);
const MAINTAIN: &str = concat!(
    include_str!("lua/base.lua"),
    include_str!("lua/writing.lua"),
    include_str!("lua/standing.lua"),
    include_str!("lua/letters.lua"),
    include_str!("lua/marks.lua"),
    include_str!("lua/maintain.lua"),
);
const TELL: &str = concat!(
    include_str!("lua/base.lua"),
    include_str!("lua/reading.lua"),
    include_str!("lua/standing.lua"),
    include_str!("lua/tell.lua"),
);
const COPY: &str = concat!(
    include_str!("lua/base.lua"),
    include_str!("lua/writing.lua"),
    include_str!("lua/standing.lua"),
    include_str!("lua/letters.lua"),
    include_str!("lua/marks.lua"),
    include_str!("lua/delayed.lua"),
    include_str!("lua/copy.lua"),
);

/// By [`Script`]: text and hash.
static SOURCES: LazyLock<[(&str, String); SCRIPTS]> = LazyLock::new(|| {
    [BEGIN, APPEND, CHANGE, QUEUES, READ, MAINTAIN, TELL, COPY]
        .map(|text| (text, redis::Script::new(text).get_hash().to_owned()))
});

/// Where a call belongs in the line of its writer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The realm's keys begin with it.
    pub(super) prefix: &'a str,
    pub(super) writer: &'a str,
    pub(super) epoch: u64,
    /// Its number, or for a look the number of the last change before it.
    pub(super) number: u64,
}

/// One call; with the whole text if the server may not know the script.
pub(super) fn command(script: Script, is_known: bool, place: Place<'_>, args: &[&Args]) -> Cmd {
    let (text, hash) = &SOURCES[script as usize];
    let mut cmd = match is_known {
        true => redis::cmd("EVALSHA"),
        false => redis::cmd("EVAL"),
    };
    cmd.arg(if is_known { hash.as_str() } else { text });
    cmd.arg(1).arg(place.prefix).arg(place.writer);
    cmd.arg(place.epoch).arg(place.number);
    for arg in args.iter().flat_map(|args| args.iter()) {
        cmd.arg(arg);
    }
    cmd
}
