//! A reservation that was not granted, and how it is said.

use std::sync::Arc;

use plimsoll_base::{Bytes, Error, Shortage, exact};

use super::{Denied, Holder};

/// How many holders an error names.
pub(super) const NAMED_HOLDERS: usize = 5;

/// A reservation that was not granted, with everything that an error needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The device.
    pub device: Arc<str>,
    /// The holder that asked.
    pub holder: String,
    /// Bytes asked.
    pub asked: Bytes,
    /// Bytes reserved at that time.
    pub in_use: Bytes,
    /// The limit.
    pub limit: Bytes,
    /// The largest holders, largest first.
    pub holders: Vec<Holder>,
    /// How many holders are not in the list.
    pub more_holders: usize,
    /// Set where the limit allows it and there is not that much behind the ledger: the reason.
    pub upstream: Option<Box<Denied>>,
}

impl From<Refusal> for Error {
    /// RESOURCE_EXHAUSTED with the device, bytes asked, used and allowed, the holders, and a remedy. Where the machine's card is
    /// full, the error of that, with the driver's name for it and the bytes that this process holds in front.
    fn from(refusal: Refusal) -> Error {
        let Refusal { device, holder, asked, in_use, limit, holders, more_holders, upstream } = refusal;
        let mut message = format!("{holder} asks for {}; {} of a limit of {} are reserved", exact(asked), exact(in_use), exact(limit));
        for (index, holder) in holders.iter().enumerate() {
            message += &format!("{}{}: {}", if index == 0 { " (" } else { ", " }, holder.name, exact(holder.bytes));
        }
        if more_holders > 0 {
            message += &format!(", and {more_holders} more");
        }
        if !holders.is_empty() {
            message += ")";
        }
        if let Some(upstream) = upstream {
            return match *upstream {
                Denied::Full { card, code, error } => error.context(format!("{code}: {device}: {message}; card {card}")),
                Denied::Broken(error) => error.context(message).on_device(&*device),
            };
        }
        let holders = holders.into_iter().map(|holder| (holder.name.to_string(), holder.bytes)).collect();
        let shortage = Shortage { requested: asked, used: in_use, limit: Some(limit), holders };
        let mut remedy =
            format!("{} are missing: raise the memory limit to at least {} bytes", exact(shortage.missing()), shortage.least().0);
        if !shortage.holders.is_empty() {
            remedy += ", or close one of the holders";
        }
        Error::no_room(message, shortage).on_device(&*device).with_remedy(remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ledger;

    #[test]
    fn a_refusal_says_everything() {
        let ledger = Ledger::new("/device:CPU:0", Some(Bytes(64 << 20)));
        let _a = ledger.reserve(Bytes(40 << 20), "session 1: variables").unwrap();
        let _rest: Vec<_> = (0..6).map(|i| ledger.reserve(Bytes(100 + i), &format!("session 1: feed {i}")).unwrap()).collect();
        let error = Error::from(ledger.reserve(Bytes(32 << 20), "session 2: arena").unwrap_err());
        assert_eq!(
            error.to_string(),
            "RESOURCE_EXHAUSTED: session 2: arena asks for 32 MiB (33554432 bytes); 40.00 MiB (41943655 bytes) of a limit of 64 MiB (67108864 \
             bytes) are reserved (session 1: variables: 40 MiB (41943040 bytes), session 1: feed 5: 105 B, session 1: feed 4: 104 B, \
             session 1: feed 3: 103 B, session 1: feed 2: 102 B, and 2 more) on /device:CPU:0\n  hint: 8.00 MiB (8389223 bytes) are missing: \
             raise the memory limit to at least 75498087 bytes, or close one of the holders"
        );
    }
}
