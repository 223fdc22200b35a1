//! Sums of channels, alone and behind convolutions.

use super::{Attribute, Handle, Made, Parts, Tries, integers, numbers, operation, others, parts, tensor, with, without};

impl Tries<'_> {
    /// Sums of channels, and graphs of a convolution of halves with them: of these there are engines without a driver.
    pub(super) fn statistics(&mut self, card: Handle) -> Made<()> {
        let backend = self.backend;
        let halves = |attributes: Vec<Attribute>| with(attributes, numbers(901, 1, &[2]));
        let make = |attributes: Vec<Attribute>| backend.make(17, &attributes);
        let channels = |name: i64| tensor(name, [1, 8, 1, 1]);
        let (y, sums, squares) = (make(halves(tensor(60, [2, 8, 5, 5])))?, make(channels(61))?, make(channels(62))?);
        let of = |y: Handle, sums: Handle, squares: Handle| -> Vec<Attribute> {
            let tensors = [(772, y), (773, sums), (774, squares)].map(|(name, tensor)| others(name, &[tensor]));
            [&[numbers(770, 16, &[0]), numbers(771, 1, &[0])], &tensors[..]].concat()
        };
        let base = of(y, sums, squares);
        self.made("sums of channels", 14, &base);
        for name in [770, 771, 772, 773, 774] {
            self.made(&format!("sums of channels without {name}"), 14, &without(base.clone(), name));
        }
        let longer = make(tensor(63, [1, 9, 1, 1]))?;
        for (what, attribute) in [
            ("a mode of 8 bytes", integers(770, &[0])),
            ("two modes", numbers(770, 16, &[0, 0])),
            ("a mode of operations on each element", numbers(770, 14, &[0])),
            ("numbers of bfloat16", numbers(771, 1, &[9])),
            ("an attribute of a tensor", integers(900, &[16])),
            ("more sums than channels", others(773, &[longer])),
            ("two tensors", others(772, &[y, y])),
            ("the tensor as its sums", others(773, &[y])),
        ] {
            self.made(&format!("sums of channels with {what}"), 14, &with(base.clone(), attribute));
        }
        // The result is in memory, or not; sums are floats, or not; they are of what the convolution computes, or of something else.
        let flag = Attribute(907, 2, 1, vec![1]);
        let between = make(with(halves(tensor(64, [2, 8, 5, 5])), flag))?;
        let (rounded, other) = (make(halves(channels(65)))?, make(halves(tensor(66, [2, 8, 5, 5])))?);
        let few = make(halves(tensor(67, [2, 6, 5, 5])))?;
        let few_sums = [68, 69].map(|name| make(tensor(name, [1, 6, 1, 1])));
        let [first, second] = few_sums;
        for (what, filter, result, statistics) in [
            ("", [8, 8, 3, 3], y, of(y, sums, squares)),
            (" of what is not in memory", [8, 8, 3, 3], between, of(between, sums, squares)),
            (" of halves", [8, 8, 3, 3], y, of(y, rounded, squares)),
            (" of another tensor", [8, 8, 3, 3], y, of(other, sums, squares)),
            (" of six channels", [6, 8, 3, 3], few, of(few, first?, second?)),
        ] {
            self.try_(&format!("a graph of a convolution and of sums of channels{what}"), |backend| {
                let parts = Parts { input: halves(tensor(1, [2, 8, 5, 5])), filter: halves(tensor(2, filter)), ..parts() };
                let shape = Parts { result: halves(tensor(3, [2, filter[0], 5, 5])), ..parts };
                let attributes = with(operation(backend, 10, &shape)?, others(705, &[result]));
                let operations = [backend.make(10, &attributes)?, backend.make(14, &statistics)?];
                let graph = backend.make(15, &[others(801, &operations)])?;
                let heuristics = backend.make(4, &[others(201, &[graph]), numbers(200, 8, &[3]), others(204, &[card])])?;
                if backend.list(heuristics, 202, 3, 64)?.is_empty() { Err("no engine".to_string()) } else { Ok(()) }
            });
        }
        Ok(())
    }
}
