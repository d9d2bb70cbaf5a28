//! Our stable codes on JavaScript errors (P34). Knows no promise: an asynchronous failure travels
//! through the port as a record with the same three fields.

use serde::Serialize;

/// What a synchronous export returns: the status text becomes `err.code` in JavaScript.
pub type Result<T> = napi::Result<T, &'static str>;

/// A synchronous failure with our code.
pub(crate) fn thrown(error: &restante::Error) -> napi::Error<&'static str> {
    napi::Error::new(error.code(), error.message())
}

/// A failure of Node itself while a value was converted; it keeps no code of ours.
pub(crate) fn broken(error: napi::Error) -> napi::Error<&'static str> {
    napi::Error::new("internal", error.reason.clone())
}

/// An options text that JavaScript made and we could not read: a fault of ours, not of the user.
pub(crate) fn unreadable(error: serde_json::Error) -> napi::Error<&'static str> {
    napi::Error::new("internal", error.to_string())
}

/// An error as a record of the port.
#[derive(Serialize)]
pub(crate) struct Told<'a> {
    code: &'static str,
    number: i32,
    message: &'a str,
    /// What somebody else's code said.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'a str>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

impl<'a> From<&'a restante::Error> for Told<'a> {
    fn from(error: &'a restante::Error) -> Self {
        Self {
            code: error.code(),
            number: error.kind().number(),
            message: error.message(),
            cause: error.cause(),
            retry_after: error.retry_after(),
        }
    }
}

/// Every code that the core knows, for the test that compares them with `index.d.ts`.
#[napi_derive::napi(catch_unwind)]
pub fn error_codes() -> Vec<&'static str> {
    let kinds = restante::ErrorKind::ALL;
    kinds.iter().map(|kind| kind.code()).collect()
}
