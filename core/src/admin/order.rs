//! A signed order as it came: `{body, proof}`. Its body stays the text that was signed. Knows no verb.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Error, ErrorKind, Result};

/// See the module.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Order<'a> {
    #[serde(borrow, default)]
    body: Option<&'a RawValue>,
    #[serde(borrow, default)]
    proof: Option<&'a RawValue>,
}

impl<'a> Order<'a> {
    /// Reads the payload of a signed verb; what is no such object has no proof.
    pub(super) fn read(payload: Option<&'a str>) -> Self {
        let order = payload.and_then(|text| serde_json::from_str(text).ok());
        order.unwrap_or_default()
    }

    /// The text of the body; `None`: there is none.
    pub(super) fn body(&self) -> Option<&'a str> {
        self.body.map(RawValue::get)
    }

    /// The text of the proof; `None`: there is none.
    pub(super) fn proof(&self) -> Option<&'a str> {
        self.proof.map(RawValue::get)
    }

    /// The body, where there must be one.
    pub(super) fn needed_body(&self) -> Result<&'a str> {
        let missing = || Error::new(ErrorKind::BadCommand, "body must be an object");
        self.body().ok_or_else(missing)
    }
}
