//! Memory of another owner that a device uses for a while: fed and fetched tensors, constants in the graph.

use std::sync::Arc;

use plimsoll_base::Bytes;

use crate::{Ledger, Refusal};

/// Bytes of others that count against a line. The amount changes as often as needed; changing it allocates nothing.
#[derive(Debug)]
pub struct Loan {
    ledger: Arc<Ledger>,
    holder: Arc<str>,
    bytes: Bytes,
}

impl Loan {
    /// A loan of no bytes yet, in the name of `holder`.
    pub fn new(ledger: &Arc<Ledger>, holder: &str) -> Loan {
        Loan { ledger: ledger.clone(), holder: ledger.register(holder), bytes: Bytes::ZERO }
    }

    /// How much is lent.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Changes how much is lent. Less is always granted.
    ///
    /// # Errors
    /// A refusal, with the loan as it was, if the limit would be exceeded.
    pub fn set(&mut self, bytes: Bytes) -> Result<(), Refusal> {
        self.ledger.change_loan(&self.holder, self.bytes, bytes)?;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.ledger.end_loan(&self.holder, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_while_it_lasts() {
        let ledger = Ledger::new("CPU:0", Some(Bytes(100)));
        let mut loan = Loan::new(&ledger, "feeds");
        loan.set(Bytes(60)).unwrap();
        assert_eq!((ledger.in_use(), ledger.mapped()), (Bytes(60), Bytes(60)));
        assert!(ledger.reserve(Bytes(41), "other").is_err());
        assert!(loan.set(Bytes(101)).is_err());
        assert_eq!(loan.bytes(), Bytes(60));
        assert_eq!(ledger.holders()[0].name.as_ref(), "feeds");
        loan.set(Bytes::ZERO).unwrap();
        assert_eq!(ledger.holders().len(), 0);
        loan.set(Bytes(100)).unwrap();
        drop(loan);
        assert_eq!((ledger.in_use(), ledger.peak(), ledger.mapped()), (Bytes::ZERO, Bytes(100), Bytes::ZERO));
        assert_eq!(ledger.holders().len(), 0);
    }

    #[test]
    fn two_loans_of_one_name_add_up() {
        let ledger = Ledger::new("CPU:0", None);
        let (mut a, mut b) = (Loan::new(&ledger, "feeds"), Loan::new(&ledger, "feeds"));
        a.set(Bytes(1)).unwrap();
        b.set(Bytes(2)).unwrap();
        drop(a);
        assert_eq!(ledger.holders()[0].bytes, Bytes(2));
    }
}
