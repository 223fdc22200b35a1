//! The equation of an Einsum.

use plimsoll_base::{Error, Result};

/// The labels of a tensor's dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscripts {
    /// The labels before the ellipsis, and those behind it.
    pub named: [Vec<u8>; 2],
    /// Whether there is an ellipsis: dimensions without names, which broadcast.
    pub has_ellipsis: bool,
    /// As written.
    pub text: String,
}

/// An equation of one or two operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equation {
    pub inputs: Vec<Subscripts>,
    pub output: Subscripts,
}

impl Subscripts {
    fn parse(text: &str) -> Result<Subscripts> {
        let periods = text.matches('.').count();
        if periods != 0 && periods != 3 {
            return Err(Error::invalid_argument(format!(
                "Expected at most one ellipsis (...), but found {periods} periods (.) in the input subscript: {text}"
            )));
        }
        let (before, after) = match text.split_once("...") {
            Some(parts) => parts,
            None if periods == 3 => {
                return Err(Error::invalid_argument(format!("Periods found outside of ellipsis in subscript: {text}")));
            }
            None => (text, ""),
        };
        let named = [before, after].map(|labels| labels.as_bytes().to_vec());
        Ok(Subscripts { named, has_ellipsis: periods == 3, text: text.to_string() })
    }

    /// The named labels in their order.
    pub fn labels(&self) -> impl Iterator<Item = u8> + '_ {
        self.named.iter().flatten().copied()
    }

    pub fn has(&self, label: u8) -> bool {
        self.labels().any(|other| other == label)
    }
}

impl Equation {
    /// Reads it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for other forms than `(x),(y)->(z)` and `(x)->(z)`, and for outputs with a label that no operand has.
    pub fn parse(text: &str) -> Result<Equation> {
        let parts: Vec<&str> = text.split("->").collect();
        let [inputs, output] = parts[..] else {
            return Err(Error::invalid_argument(format!("Expecting exactly one '->' in einsum equation: {text}")));
        };
        let inputs: Vec<&str> = inputs.split(',').collect();
        if inputs.len() > 2 {
            let count = inputs.len();
            return Err(Error::invalid_argument(format!("Expecting 1 or 2 input subscripts in equation '{text}' but got: {count}")));
        }
        let inputs = inputs.into_iter().map(Subscripts::parse).collect::<Result<Vec<_>>>()?;
        let output = Subscripts::parse(output)?;
        let is_known = |label: &u8| inputs.iter().any(|input| input.has(*label));
        if let Some(label) = output.labels().find(|label| !is_known(label)) {
            let label = label as char;
            return Err(Error::invalid_argument(format!(
                "Einsum output subscripts contain the label '{label}', which no input of the equation '{text}' has"
            )));
        }
        Ok(Equation { inputs, output })
    }
}
