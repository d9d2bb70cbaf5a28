//! A connection to Redis that somebody else made and keeps: commands and answers as packed bytes.
//!
//! Whatever it repeats by itself happens once all the same, see [`super::lane`]. Knows no command.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use redis::{ErrorKind as RedisKind, RedisError, RedisResult, Value};

use crate::store::Pending;

/// A connection to Redis that somebody else made.
pub trait RedisClient: Send + Sync + 'static {
    /// Sends commands, packed as in RESP, in their order; answers one RESP array of all answers,
    /// refusals among them as errors. An error: the connection has failed, and nobody knows which of
    /// them have happened.
    fn send(&self, commands: Vec<u8>, count: usize) -> Pending<Bytes>;
}

/// A [`RedisClient`] among options.
#[derive(Clone)]
pub struct GivenClient(Arc<dyn RedisClient>);

impl GivenClient {
    /// This client.
    pub fn new(client: Arc<dyn RedisClient>) -> Self {
        Self(client)
    }

    pub(super) async fn send(&self, commands: Vec<u8>, count: usize) -> RedisResult<Vec<Value>> {
        let failed = |what: String| RedisError::from((RedisKind::Io, "the client", what));
        let answer = self.0.send(commands, count).await;
        let answer = answer.map_err(|error| failed(error.message().to_owned()))?;
        match redis::parse_redis_value(&answer)? {
            Value::Array(values) if values.len() == count => Ok(values),
            _ => Err(failed(
                "it answered something else than it was asked".to_owned(),
            )),
        }
    }
}

impl PartialEq for GivenClient {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for GivenClient {}

impl fmt::Debug for GivenClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GivenClient").finish_non_exhaustive()
    }
}
