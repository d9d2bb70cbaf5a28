//! For tests: an encoder that does nothing; the bench looks at effects instead.

use super::super::ports::{Content, Head};

/// Nothing is written.
pub(super) struct NoHead;

impl Head for NoHead {
    fn plain(&self, _: &Content<'_>, _: &mut Vec<u8>) {}
    fn tracked(&self, _: &Content<'_>, _: &str, _: u32, _: &mut Vec<u8>) {}
    fn repeated(&self, _: &Content<'_>, _: &mut Vec<u8>) {}
}
