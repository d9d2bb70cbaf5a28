//! Reads the body of a POST within the limits of frames: permits, oversize, the end (P21, P25).

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use super::conn::Conn;
use super::permits::{FREE, Permit};
use super::polling::Body;
use super::thread::Shared;

/// Why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// The client went away.
    Gone,
    /// It stood still, or no permit came in time.
    TooSlow,
}

/// Reads a body; a large one waits for its permit before it is read.
pub(super) async fn read(
    shared: &Arc<Shared>,
    conn: &Conn,
    mut incoming: Incoming,
) -> Result<(Body, Option<Permit>), Unread> {
    let limit = conn.frame_limit() as u64;
    let announced = incoming.size_hint().exact().unwrap_or(0);
    if announced > limit.saturating_mul(2) {
        return Ok((Body::Refused, None));
    }
    let (mut body, mut size, mut permit) = (Vec::new(), 0u64, None);
    loop {
        let expected = size.max(announced);
        if expected > FREE as u64 && expected <= limit {
            wait(shared, conn, &mut permit, expected as usize).await?;
        }
        let Some(frame) = in_time(shared, incoming.frame()).await? else {
            break;
        };
        let Ok(bytes) = frame.map_err(|_| Unread::Gone)?.into_data() else {
            continue;
        };
        size += bytes.len() as u64;
        if size > limit.saturating_mul(2) {
            return Ok((Body::Refused, None));
        }
        if size.max(announced) > limit {
            (body, permit) = (Vec::new(), None);
        } else {
            body.extend_from_slice(&bytes);
        }
    }
    if size > limit {
        return Ok((Body::Oversize(size), None));
    }
    Ok((Body::Packets(body), permit))
}

async fn wait(
    shared: &Arc<Shared>,
    conn: &Conn,
    permit: &mut Option<Permit>,
    bytes: usize,
) -> Result<(), Unread> {
    in_time(shared, shared.permits.ensure(permit, conn.charged(), bytes)).await
}

/// A body that stands still must not keep what it holds.
async fn in_time<T>(shared: &Arc<Shared>, work: impl Future<Output = T>) -> Result<T, Unread> {
    let clock = &shared.clock;
    let deadline = clock.sleep_until(clock.elapsed() + shared.config.permit_timeout);
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = deadline => Err(Unread::TooSlow),
    }
}
