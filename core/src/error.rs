//! The one public error: a kind with a stable code, a text for people, and where it came from.
//!
//! Rooms may have small enums of their own; whatever leaves the library is an [`Error`]. Knows no
//! wire and no HTTP: the borders translate [`ErrorKind`] once each.

use std::fmt;

/// What went wrong, as a stable name that is never reused (P34).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A frame that is not Engine.IO 4 / Socket.IO 5. Ends the session.
    BadFrame,
    /// A verb with a missing or wrong field.
    BadCommand,
    /// Larger than `max_message_bytes`.
    PayloadTooLarge,
    /// A chunk transfer that was dropped: limits, idle time, or pieces that do not fit together.
    ChunkDropped,
    /// Nobody has logged in on this session.
    Unauthenticated,
    /// Known, but may not do this.
    Forbidden,
    /// A signed command whose proof is wrong, too old, or was seen before.
    ProofRejected,
    /// No such realm is configured.
    RealmUnknown,
    /// A realm of that name is configured already.
    RealmExists,
    /// No such token is known.
    TokenUnknown,
    /// A token of that text is known already.
    TokenExists,
    /// No such authorization request is pending.
    RequestUnknown,
    /// No such session is connected.
    SessionUnknown,
    /// Somebody else has changed it meanwhile.
    Conflict,
    /// Too much in too short a time.
    RateLimited,
    /// Every queue that would have taken the message is full, or the realm is.
    QueueFull,
    /// The store cannot be reached or refused.
    StoreUnavailable,
    /// The store did not answer within `store_timeout`; the write may or may not have happened.
    StoreTimeout,
    /// The store has no room left.
    StoreFull,
    /// The store holds damaged data.
    StoreCorrupt,
    /// Another broker uses the store.
    StoreLocked,
    /// The store has no such function.
    StoreUnsupported,
    /// A change of stores is under way already.
    SwapInProgress,
    /// No such delivery is known.
    DeliveryUnknown,
    /// No such dead letter is known.
    DeadLetterUnknown,
    /// A newer attempt of this delivery is already out.
    StaleAck,
    /// Another broker has taken the queue over.
    Fenced,
    /// The consumer id belongs to somebody else.
    ConsumerIdTaken,
    /// A live session holds this consumer name.
    DuplicateConsumer,
    /// A name that is empty, too long, reserved, or holds control characters.
    BadName,
    /// Anonymous names are not allowed here.
    AnonymousRefused,
    /// The realm takes encrypted bodies only.
    E2eeRequired,
    /// A value that JSON and binary attachments cannot carry.
    NotCarriable,
    /// More than 10,000 keys match one message.
    TooManyMatches,
    /// The message outlived its `ttl` before it could be sent.
    Expired,
    /// Asked for something that this side does not do.
    Unsupported,
    /// A wrong option or setting.
    Config,
    /// The server is stopping.
    ShuttingDown,
    /// The connection is gone.
    Disconnected,
    /// No answer in time.
    Timeout,
    /// A fault of ours.
    Internal,
}

impl ErrorKind {
    /// Every kind, for tables and tests.
    pub const ALL: &'static [ErrorKind] = &[
        Self::BadFrame,
        Self::BadCommand,
        Self::PayloadTooLarge,
        Self::ChunkDropped,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::ProofRejected,
        Self::RealmUnknown,
        Self::RealmExists,
        Self::TokenUnknown,
        Self::TokenExists,
        Self::RequestUnknown,
        Self::SessionUnknown,
        Self::Conflict,
        Self::RateLimited,
        Self::QueueFull,
        Self::StoreUnavailable,
        Self::StoreTimeout,
        Self::StoreFull,
        Self::StoreCorrupt,
        Self::StoreLocked,
        Self::StoreUnsupported,
        Self::SwapInProgress,
        Self::DeliveryUnknown,
        Self::DeadLetterUnknown,
        Self::StaleAck,
        Self::Fenced,
        Self::ConsumerIdTaken,
        Self::DuplicateConsumer,
        Self::BadName,
        Self::AnonymousRefused,
        Self::E2eeRequired,
        Self::NotCarriable,
        Self::TooManyMatches,
        Self::Expired,
        Self::Unsupported,
        Self::Config,
        Self::ShuttingDown,
        Self::Disconnected,
        Self::Timeout,
        Self::Internal,
    ];

    /// The stable snake_case name, the same on the wire, in JavaScript and in metrics (P34).
    pub const fn code(self) -> &'static str {
        match self {
            Self::BadFrame => "bad_frame",
            Self::BadCommand => "bad_command",
            Self::PayloadTooLarge => "payload_too_large",
            Self::ChunkDropped => "chunk_dropped",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::ProofRejected => "proof_rejected",
            Self::RealmUnknown => "realm_unknown",
            Self::RealmExists => "realm_exists",
            Self::TokenUnknown => "token_unknown",
            Self::TokenExists => "token_exists",
            Self::RequestUnknown => "request_unknown",
            Self::SessionUnknown => "session_unknown",
            Self::Conflict => "conflict",
            Self::RateLimited => "rate_limited",
            Self::QueueFull => "queue_full",
            Self::StoreUnavailable => "store_unavailable",
            Self::StoreTimeout => "store_timeout",
            Self::StoreFull => "store_full",
            Self::StoreCorrupt => "store_corrupt",
            Self::StoreLocked => "store_locked",
            Self::StoreUnsupported => "store_unsupported",
            Self::SwapInProgress => "swap_in_progress",
            Self::DeliveryUnknown => "delivery_unknown",
            Self::DeadLetterUnknown => "dead_letter_unknown",
            Self::StaleAck => "stale_ack",
            Self::Fenced => "fenced",
            Self::ConsumerIdTaken => "consumer_id_taken",
            Self::DuplicateConsumer => "duplicate_consumer",
            Self::BadName => "bad_name",
            Self::AnonymousRefused => "anonymous_refused",
            Self::E2eeRequired => "e2ee_required",
            Self::NotCarriable => "not_carriable",
            Self::TooManyMatches => "too_many_matches",
            Self::Expired => "expired",
            Self::Unsupported => "unsupported",
            Self::Config => "config",
            Self::ShuttingDown => "shutting_down",
            Self::Disconnected => "disconnected",
            Self::Timeout => "timeout",
            Self::Internal => "internal",
        }
    }

    /// The numeric `code` that stands beside `error` on the wire: the negative numbers of the
    /// existing clients where there is one, else an HTTP status.
    pub const fn number(self) -> i32 {
        match self {
            Self::BadName => -1,
            Self::DuplicateConsumer => -3,
            Self::AnonymousRefused => -4,
            Self::BadCommand | Self::NotCarriable | Self::TooManyMatches => -5,
            Self::E2eeRequired => -6,
            Self::ChunkDropped => -7,
            Self::StoreUnavailable => -8,
            Self::BadFrame | Self::Config => 400,
            Self::Unauthenticated | Self::ProofRejected => 401,
            Self::Forbidden | Self::ConsumerIdTaken => 403,
            Self::DeliveryUnknown
            | Self::DeadLetterUnknown
            | Self::RealmUnknown
            | Self::TokenUnknown
            | Self::RequestUnknown
            | Self::SessionUnknown => 404,
            Self::StaleAck
            | Self::Fenced
            | Self::RealmExists
            | Self::TokenExists
            | Self::Conflict
            | Self::SwapInProgress => 409,
            Self::Expired => 410,
            Self::PayloadTooLarge => 413,
            Self::StoreLocked => 423,
            Self::RateLimited | Self::QueueFull => 429,
            Self::StoreCorrupt | Self::Internal => 500,
            Self::StoreUnsupported | Self::Unsupported => 501,
            Self::ShuttingDown | Self::Disconnected => 503,
            Self::StoreTimeout | Self::Timeout => 504,
            Self::StoreFull => 507,
        }
    }

    /// The same as an HTTP status: the numeric `code` of management, where no client knows other numbers.
    pub const fn status(self) -> u16 {
        match self {
            Self::BadName
            | Self::BadCommand
            | Self::NotCarriable
            | Self::TooManyMatches
            | Self::ChunkDropped => 400,
            Self::AnonymousRefused | Self::E2eeRequired => 403,
            Self::DuplicateConsumer => 409,
            Self::StoreUnavailable => 503,
            // Positive, all of them.
            _ => self.number().unsigned_abs() as u16,
        }
    }

    /// Whether the same call may succeed later without a change.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::ChunkDropped
                | Self::RateLimited
                | Self::Conflict
                | Self::SwapInProgress
                | Self::QueueFull
                | Self::StoreUnavailable
                | Self::StoreTimeout
                | Self::StoreFull
                | Self::ShuttingDown
                | Self::Disconnected
                | Self::Timeout
        )
    }
}

/// An error that leaves the library: a [`ErrorKind`] and one sentence for people.
///
/// Match on [`Error::kind`] or [`Error::code`], never on the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: Box<str>,
    cause: Option<Box<str>>,
    retry_after: Option<u64>,
}

/// `Result` with our [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind` with a sentence that tells a tired reader what to do next.
    pub fn new(kind: ErrorKind, message: impl Into<Box<str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            cause: None,
            retry_after: None,
        }
    }

    /// The same with the seconds after which trying again has a chance.
    #[must_use]
    pub fn retried_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The seconds after which trying again has a chance; `None`: unknown.
    pub fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// The same with what somebody else's code said, in its own words.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<Box<str>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The stable snake_case name (P34).
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// What somebody else's code said, in its own words; `None`: the error is ours.
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// The sentence for people.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
