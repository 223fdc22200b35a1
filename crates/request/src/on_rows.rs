//! Requests of which some arguments are rows of larger tensors.

use plimsoll_base::{DataType, Error, Result};
use serde::{Deserialize, Serialize};

use crate::{Arguments, KernelRequest};

/// An argument that is a row of a tensor, which an integer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowOf {
    /// The number of the argument, among the inputs or among the outputs.
    pub argument: u32,
    /// Rows of the tensor, each as large as the argument.
    pub rows: u64,
    /// Int32 or int64.
    pub index_type: DataType,
}

/// A request of which some inputs and outputs are rows of larger tensors.
///
/// Arguments: the request's inputs, with the tensor in the place of each that is a row; for each output that is a row, the tensor; for
/// each row, those of inputs first, its index; then the request's outputs, with the tensor afterwards in the place of each that is a
/// row. That lies where the tensor does. At run time a fault for an index outside; tensors are then as before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OnRows {
    /// What is computed.
    pub request: Box<KernelRequest>,
    /// The inputs that are rows, ascending.
    pub inputs: Vec<RowOf>,
    /// The outputs that are rows, ascending.
    pub outputs: Vec<RowOf>,
}

impl OnRows {
    /// The bytes of its arguments.
    ///
    /// # Errors
    /// As [`KernelRequest::arguments`]; INVALID_ARGUMENT for rows of arguments that are not there, and for a request that changes
    /// an output in place or is on rows itself.
    pub(crate) fn arguments(&self) -> Result<Arguments> {
        let wrong = |why: &str| Err(Error::invalid_argument(format!("a request on rows: {why}")));
        if matches!(*self.request, KernelRequest::OnRows(_)) {
            return wrong("its request is on rows, too");
        }
        let Arguments { mut inputs, mut outputs, updates_first } = self.request.arguments()?;
        if updates_first {
            return wrong("its request changes its first output");
        }
        for (rows, arguments) in [(&self.inputs, &mut inputs), (&self.outputs, &mut outputs)] {
            if rows.windows(2).any(|pair| pair[0].argument >= pair[1].argument) {
                return wrong("an argument is a row twice");
            }
            for row in rows {
                let all = arguments.get_mut(row.argument as usize);
                match all.map(|bytes| bytes.checked_mul(row.rows).map(|all| *bytes = all)) {
                    Some(Some(())) => {}
                    Some(None) => return wrong("a tensor of more than 64 bits of bytes"),
                    None => return wrong("a row of an argument that is not there"),
                }
            }
        }
        inputs.extend(self.outputs.iter().map(|row| outputs[row.argument as usize]));
        for row in self.rows() {
            inputs.push(match row.index_type {
                DataType::Int32 => 4,
                DataType::Int64 => 8,
                _ => return wrong("an index that is no int32 or int64"),
            });
        }
        Ok(Arguments { inputs, outputs, updates_first: false })
    }

    /// All rows, in the order of their indices.
    pub fn rows(&self) -> impl Iterator<Item = &RowOf> {
        self.inputs.iter().chain(&self.outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::movement::Movement;
    use crate::random::Random;

    fn row(argument: u32, rows: u64) -> RowOf {
        RowOf { argument, rows, index_type: DataType::Int32 }
    }

    fn copy() -> KernelRequest {
        KernelRequest::Movement { element: 4, movement: Movement::Transpose { shape: vec![2, 3], perm: vec![1, 0] } }
    }

    #[test]
    fn tensors_are_in_the_places_of_rows_and_indices_follow() {
        let request = OnRows {
            request: Box::new(copy()),
            inputs: vec![row(0, 5)],
            outputs: vec![RowOf { index_type: DataType::Int64, ..row(0, 7) }],
        };
        let arguments = KernelRequest::OnRows(request).arguments().unwrap();
        assert_eq!((arguments.inputs, arguments.outputs), (vec![120, 168, 4, 8], vec![168]));
    }

    #[test]
    fn rows_that_make_no_sense_are_refused() {
        let on = |request: KernelRequest, inputs: Vec<RowOf>, outputs: Vec<RowOf>| OnRows { request: Box::new(request), inputs, outputs };
        let update = KernelRequest::Random(Random::Reserve { blocks: 1 });
        let nested = KernelRequest::OnRows(on(copy(), vec![row(0, 2)], Vec::new()));
        for (request, why) in [
            (on(copy(), vec![row(1, 2)], Vec::new()), "not there"),
            (on(copy(), vec![row(0, 2), row(0, 2)], Vec::new()), "twice"),
            (on(copy(), Vec::new(), vec![row(0, u64::MAX)]), "64 bits"),
            (on(copy(), vec![RowOf { index_type: DataType::Float, ..row(0, 2) }], Vec::new()), "index"),
            (on(nested, Vec::new(), vec![row(0, 2)]), "too"),
            (on(update, Vec::new(), vec![row(0, 2)]), "first output"),
        ] {
            let error = KernelRequest::OnRows(request).arguments().unwrap_err();
            assert!(error.to_string().contains(why), "{error} for {why}");
        }
    }
}
