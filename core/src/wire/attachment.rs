//! Puts a binary packet and its attachments together, within bounds.
//!
//! Does not look into the JSON: placeholders are the business of whoever reads it.

use bytes::Bytes;

use super::Malformed;

/// A binary packet that waits for its attachments.
#[derive(Debug)]
pub struct Reassembler {
    namespace: Box<str>,
    id: Option<u64>,
    json: Box<str>,
    wanted: usize,
    parts: Vec<Bytes>,
    /// Attachments that were thrown away: the packet will be, too.
    spoiled: usize,
    held: usize,
    limit: usize,
}

/// A binary packet with all its attachments.
#[derive(Debug)]
pub struct Assembled {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its acknowledgement id.
    pub id: Option<u64>,
    /// Its JSON text.
    pub json: Box<str>,
    /// The attachments in the order of their numbers.
    pub attachments: Vec<Bytes>,
}

impl Reassembler {
    /// Starts a packet that announced `wanted` attachments (at least one); text and attachments
    /// together may take `limit` bytes.
    pub fn new(packet: &super::socket::Packet<'_>, wanted: u32, limit: usize) -> Self {
        Self {
            namespace: packet.namespace.into(),
            id: packet.id,
            json: packet.json.into(),
            wanted: wanted as usize,
            parts: Vec::new(),
            spoiled: 0,
            held: packet.json.len(),
            limit,
        }
    }

    /// Bytes it holds.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Takes the next attachment; true when none is missing any more.
    ///
    /// # Errors
    /// [`Malformed`] if the packet grows over its limit.
    pub fn push(&mut self, attachment: &[u8]) -> Result<bool, Malformed> {
        self.held = self.held.saturating_add(attachment.len());
        if self.held > self.limit {
            return Err(Malformed("attachments over the message limit"));
        }
        if self.spoiled == 0 {
            self.parts.push(Bytes::copy_from_slice(attachment));
        } else {
            self.spoiled += 1;
        }
        Ok(self.is_complete())
    }

    /// The next attachment was thrown away unread; true when none is missing any more.
    pub fn spoil(&mut self) -> bool {
        self.spoiled += 1 + self.parts.len();
        self.parts.clear();
        self.held = self.json.len();
        self.is_complete()
    }

    fn is_complete(&self) -> bool {
        self.parts.len() + self.spoiled >= self.wanted
    }

    /// The packet, unless an attachment of it was thrown away.
    pub fn finish(self) -> Option<Assembled> {
        (self.spoiled == 0).then_some(Assembled {
            namespace: self.namespace,
            id: self.id,
            json: self.json,
            attachments: self.parts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::socket::Packet;
    use super::*;

    fn start(limit: usize) -> Reassembler {
        Reassembler::new(&Packet::parse("52-7[1]").unwrap(), 2, limit)
    }

    #[test]
    fn attachments_come_out_in_order() {
        let mut packet = start(100);
        assert_eq!(packet.push(b"a"), Ok(false));
        assert_eq!(packet.push(b"bc"), Ok(true));
        assert_eq!(packet.held(), 6);
        let whole = packet.finish().unwrap();
        assert_eq!((whole.id, &*whole.json), (Some(7), "[1]"));
        assert_eq!(whole.attachments, ["a", "bc"]);
    }

    #[test]
    fn the_limit_counts_text_and_attachments_together() {
        let mut packet = start(5);
        assert_eq!(packet.push(b"ab"), Ok(false));
        assert!(packet.push(b"c").is_err());
    }

    #[test]
    fn a_packet_that_lost_an_attachment_swallows_the_others_and_vanishes() {
        let mut packet = start(100);
        assert!(!packet.spoil());
        assert_eq!(packet.push(b"b"), Ok(true));
        assert!(packet.finish().is_none());
    }
}
