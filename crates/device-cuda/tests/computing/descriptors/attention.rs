//! Attention, and what its gradient is made of.

use super::{ADD, Attribute, Made, Tries, integers, numbers, of_mode, others, tensor, with, without};

impl Tries<'_> {
    /// Attention, with a graph of its scores, and what its gradient is made of: products, sums, and tensors that are seen otherwise.
    pub(super) fn attention(&mut self) -> Made<()> {
        let backend = self.backend;
        let dense = |name: i64, of: i32, sizes: [i64; 4]| {
            let [_, b, c, d] = sizes;
            with(with(tensor(name, sizes), integers(903, &[b * c * d, c * d, d, 1])), numbers(901, 1, &[of]))
        };
        let narrow = |name: i64, rows: i64, columns: i64| dense(name, 9, [2, 3, rows, columns]);
        let virtual_ = |attributes| with(attributes, Attribute(907, 2, 1, vec![1]));
        let make = |attributes: &[Attribute]| backend.make(17, attributes);
        let said = with(with(tensor(7, [1; 4]), integers(903, &[1; 4])), Attribute(908, 2, 1, vec![1]));
        let parts = |q: &[Attribute], k: &[Attribute], v: &[Attribute], result: &[Attribute]| -> Made<Vec<Attribute>> {
            let tensors = [(2800, make(q)?), (2801, make(k)?), (2802, make(v)?), (2803, make(result)?), (2805, make(&said)?)];
            Ok(tensors.map(|(name, tensor)| others(name, &[tensor])).to_vec())
        };
        let whole = parts(&narrow(1, 16, 8), &narrow(2, 24, 8), &narrow(3, 24, 8), &narrow(4, 16, 8))?;
        let sums = others(2804, &[make(&dense(6, 0, [2, 3, 16, 1]))?]);
        self.made("attention", 41, &whole);
        self.made("attention with logarithms of sums", 41, &with(whole.clone(), sums));
        for name in [2800, 2801, 2802, 2803, 2805] {
            self.made(&format!("attention without {name}"), 41, &without(whole.clone(), name));
        }
        for (what, sizes) in [
            ("other columns of K", [[16, 8], [24, 16], [24, 8], [16, 8]]),
            ("other rows of V", [[16, 8], [24, 8], [16, 8], [16, 8]]),
            ("other rows of the result", [[16, 8], [24, 8], [24, 8], [24, 8]]),
            ("other columns of the result", [[16, 8], [24, 8], [24, 8], [16, 16]]),
            ("other columns of V and the result", [[16, 8], [24, 8], [24, 16], [16, 16]]),
        ] {
            let [q, k, v, result] =
                [(1, 0), (2, 1), (3, 2), (4, 3)].map(|(name, at): (i64, usize)| narrow(name, sizes[at][0], sizes[at][1]));
            self.made(&format!("attention with {what}"), 41, &parts(&q, &k, &v, &result)?);
        }
        let scores = |name: i64| virtual_(dense(name, 0, [2, 3, 16, 24]));
        let (from, to) = (make(&scores(20))?, make(&scores(21))?);
        let added = make(&dense(5, 0, [1, 1, 16, 24]))?;
        let of = [others(750, &[backend.make(0, &of_mode(ADD))?]), others(751, &[from]), others(752, &[added]), others(753, &[to])];
        let graph = others(2811, &[backend.make(15, &[others(801, &[backend.make(13, &of)?])])?]);
        let more = [whole.clone(), vec![graph.clone(), integers(2812, &[20]), integers(2813, &[21])]].concat();
        self.made("attention with a sum", 41, &more);

        let product = backend.make(18, &[numbers(1500, 1, &[0])])?;
        self.made("a product's numbers", 18, &[numbers(1500, 1, &[0])]);
        let products = |a: &[Attribute], b: &[Attribute], to: &[Attribute]| -> Made<Vec<Attribute>> {
            let tensors = [(1520, make(a)?), (1521, make(b)?), (1522, make(to)?), (1523, product)];
            Ok(tensors.map(|(name, tensor)| others(name, &[tensor])).to_vec())
        };
        let one = products(&narrow(1, 16, 8), &narrow(2, 8, 24), &scores(20))?;
        self.made("products", 19, &one);
        for name in [1520, 1521, 1522, 1523] {
            self.made(&format!("products without {name}"), 19, &without(one.clone(), name));
        }
        self.made("products of other terms", 19, &products(&narrow(1, 16, 16), &narrow(2, 8, 24), &scores(20))?);
        self.made("products with other columns", 19, &products(&narrow(1, 16, 8), &narrow(2, 8, 16), &scores(20))?);

        self.made("a reduction", 21, &[numbers(1600, 18, &[0]), numbers(1601, 1, &[0])]);
        let reduction = backend.make(21, &[numbers(1600, 18, &[0]), numbers(1601, 1, &[0])])?;
        let of_rows = [(1610, make(&scores(20))?), (1611, make(&dense(22, 0, [2, 3, 16, 1]))?), (1612, reduction)];
        let of_rows = of_rows.map(|(name, tensor)| others(name, &[tensor])).to_vec();
        self.made("sums", 22, &of_rows);
        for name in [1610, 1611, 1612] {
            self.made(&format!("sums without {name}"), 22, &without(of_rows.clone(), name));
        }
        self.made("a reduction to the maximum", 21, &[numbers(1600, 18, &[3]), numbers(1601, 1, &[0])]);
        self.made("a reduction without an operator", 21, &[numbers(1601, 1, &[0])]);
        let turned = virtual_(with(dense(23, 9, [2, 3, 24, 16]), integers(903, &[3 * 16 * 24, 16 * 24, 1, 24])));
        let seen = vec![others(2200, &[make(&scores(20))?]), others(2201, &[make(&turned)?])];
        self.made("a tensor seen otherwise", 31, &seen);
        for name in [2200, 2201] {
            self.made(&format!("a tensor seen otherwise without {name}"), 31, &without(seen.clone(), name));
        }
        let fewer = with(seen, others(2201, &[make(&virtual_(dense(23, 9, [2, 3, 24, 8])))?]));
        self.made("a tensor seen with fewer elements", 31, &fewer);
        for (what, mode) in [("a product", 1), ("a difference", 9), ("a quotient", 6)] {
            let of = [others(750, &[backend.make(0, &of_mode(mode))?]), others(751, &[from]), others(753, &[to])];
            self.made(&format!("{what} of one tensor"), 13, &of);
        }
        for (what, mode) in [("an exponential", 13), ("the same", 21), ("a logarithm", 15)] {
            let of = [others(750, &[backend.make(0, &of_mode(mode))?]), others(751, &[from]), others(753, &[to])];
            self.made(what, 13, &of);
        }
        self.lying()
    }

    /// Tensors that lie by rows, and such as no tensor lies.
    fn lying(&mut self) -> Made<()> {
        let backend = self.backend;
        let said = with(with(tensor(7, [1; 4]), integers(903, &[1; 4])), Attribute(908, 2, 1, vec![1]));
        let lying =
            |name: i64, sizes: [i64; 4], strides: [i64; 4]| with(with(tensor(name, sizes), integers(903, &strides)), numbers(901, 1, &[9]));
        let by_rows = |[_, heads, rows, columns]: [i64; 4]| [heads * rows * columns, columns, heads * columns, 1];
        let by_heads = |[_, heads, rows, columns]: [i64; 4]| [heads * rows * columns, rows * columns, columns, 1];
        let (of_q, of_k) = ([2, 3, 16, 8], [2, 3, 24, 8]);
        let [by_row, by_head] = [by_rows(of_q), by_heads(of_q)];
        for (what, q) in [
            ("Q by rows", by_row),
            ("Q by columns", [by_head[0], by_head[1], 1, 16]),
            ("heads of Q in each other", [by_row[0], 4, by_row[2], 1]),
            ("heads of Q that are one", [by_head[0], 0, by_head[2], 1]),
            ("rows of Q that are apart", [2 * by_row[0], by_row[1], 2 * by_row[2], 1]),
            ("rows of Q backwards", [by_head[0], by_head[1], -8, 1]),
        ] {
            self.try_(&format!("attention with {what}"), |backend| {
                let tensors = [
                    (2800, lying(1, of_q, q)),
                    (2801, lying(2, of_k, by_rows(of_k))),
                    (2802, lying(3, of_k, by_rows(of_k))),
                    (2803, lying(4, of_q, by_rows(of_q))),
                    (2805, said.clone()),
                ];
                let made = tensors.map(|(name, tensor)| Ok(others(name, &[backend.make(17, &tensor)?])));
                let made = made.into_iter().collect::<Made<Vec<Attribute>>>()?;
                backend.make(41, &made).map(drop)
            });
        }
        // K as its products read it, with keys as columns, and as rows again.
        let [a, b, c, d] = by_rows(of_k);
        let turned = backend.make(17, &lying(25, [2, 3, 8, 24], [a, b, d, c]))?;
        let flag = Attribute(907, 2, 1, vec![1]);
        let back = backend.make(17, &with(lying(26, of_k, by_rows(of_k)), flag))?;
        self.made("a tensor by rows that is seen otherwise", 31, &[others(2200, &[turned]), others(2201, &[back])]);
        Ok(())
    }
}
