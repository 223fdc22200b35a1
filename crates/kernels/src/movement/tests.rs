use super::*;
use crate::cut::elements;
use crate::simd::Isa;
use crate::testing::{bytes, run, run_one, run_pieces, values};
use plimsoll_device::Prepared;

fn count(shape: &[u64]) -> usize {
    elements(shape).unwrap()
}

fn ramp(len: usize) -> Vec<u32> {
    (0..len as u32).collect()
}

/// All indices of `shape` in row-major order.
fn indices(shape: &[u64]) -> Vec<Vec<u64>> {
    let mut all = vec![vec![]];
    for size in shape {
        all = all.iter().flat_map(|index| (0..*size).map(move |at| [&index[..], &[at]].concat())).collect();
    }
    all
}

fn place(shape: &[u64], index: &[u64]) -> usize {
    shape.iter().zip(index).fold(0, |at, (size, index)| at * *size as usize + *index as usize)
}

/// Runs `make(size)` on elements of every size, whole and piece by piece, against `expected` positions (none: 0).
fn check(what: &str, make: impl Fn(usize) -> Result<Prepared>, input_len: usize, expected: &[Option<usize>]) {
    for size in [1usize, 2, 4, 8, 16] {
        // Every element tells its position in all its bytes, as far as they go.
        let element = |at: usize| -> Vec<u8> { (0..size).map(|byte| ((at + 1) >> (8 * (byte % 4))) as u8 ^ (byte / 4) as u8).collect() };
        let input: Vec<u8> = (0..input_len).flat_map(element).collect();
        let expected: Vec<u8> = expected.iter().flat_map(|at| at.map_or(vec![0; size], element)).collect();
        let prepared = make(size).unwrap();
        let mut output = [vec![0xEE; expected.len()]];
        run(&prepared, &[&input], &mut output).unwrap();
        assert!(output[0] == expected, "{what}, {size} bytes");
        let calls: Vec<_> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
        let mut output = [vec![0xEE; expected.len()]];
        run_pieces(&prepared, &[&input], &mut output, &calls, &[]).unwrap();
        assert!(output[0] == expected, "{what}, {size} bytes, in pieces");
    }
    assert!(make(3).is_err());
}

#[test]
fn transposes() {
    for (shape, perm) in [
        (&[][..], &[][..]),
        (&[5], &[0]),
        (&[3, 4], &[1, 0]),
        (&[16, 16], &[1, 0]),
        (&[37, 150], &[1, 0]),
        (&[300, 260], &[1, 0]),
        (&[2, 5, 7, 3], &[0, 3, 1, 2]),
        (&[2, 3, 5, 7], &[0, 2, 3, 1]),
        (&[20, 1, 33, 17], &[3, 1, 0, 2]),
        (&[4, 40, 6, 20], &[2, 3, 0, 1]),
        (&[4, 5, 6, 20], &[1, 2, 0, 3]),
        (&[3, 0, 2], &[2, 1, 0]),
        (&[2, 3, 4, 5, 6], &[4, 2, 0, 3, 1]),
    ] {
        let out_shape: Vec<u64> = perm.iter().map(|axis| shape[*axis]).collect();
        let expected: Vec<_> = indices(&out_shape)
            .iter()
            .map(|index| {
                let mut from = vec![0; index.len()];
                perm.iter().zip(index).for_each(|(axis, index)| from[*axis] = *index);
                Some(place(shape, &from))
            })
            .collect();
        check(&format!("transpose {shape:?} {perm:?}"), |size| transpose(Isa::best(), size, shape, perm), count(shape), &expected);
    }
    assert!(transpose(Isa::best(), 4, &[2, 3], &[0, 0]).is_err());
    assert!(transpose(Isa::best(), 4, &[2, 3], &[0]).is_err());
    assert!(transpose(Isa::best(), 4, &[2, 3], &[0, 2]).is_err());
}

#[test]
fn tiles_and_broadcasts() {
    for (shape, multiples) in [
        (&[][..], &[][..]),
        (&[3], &[4]),
        (&[2, 3], &[3, 1]),
        (&[2, 3], &[1, 2]),
        (&[2, 1, 3], &[2, 5, 3]),
        (&[3], &[0]),
        (&[1], &[70_000]),
    ] {
        let out_shape: Vec<u64> = shape.iter().zip(multiples).map(|(size, times)| size * times).collect();
        let expected: Vec<_> = indices(&out_shape)
            .iter()
            .map(|index| Some(place(shape, &index.iter().zip(shape).map(|(at, size)| at % size).collect::<Vec<_>>())))
            .collect();
        check(&format!("tile {shape:?} {multiples:?}"), |size| tile(Isa::best(), size, shape, multiples), count(shape), &expected);
    }
    for (from, to) in [
        (&[][..], &[][..]),
        (&[], &[3, 2]),
        (&[3], &[2, 3]),
        (&[3, 1], &[3, 4]),
        (&[2, 1, 3], &[4, 2, 5, 3]),
        (&[1, 1], &[0, 3]),
        (&[10], &[9000, 10]),
        (&[2, 3], &[2, 3]),
    ] {
        let expected: Vec<_> = indices(to)
            .iter()
            .map(|index| {
                let index = &index[to.len() - from.len()..];
                Some(place(from, &index.iter().zip(from).map(|(at, size)| at % size).collect::<Vec<_>>()))
            })
            .collect();
        check(&format!("broadcast {from:?} {to:?}"), |size| broadcast_to(Isa::best(), size, from, to), count(from), &expected);
    }
    assert_eq!(run_one(&fill(Isa::best(), 4, 5).unwrap(), &[&[7.5f32]], 5).unwrap(), [7.5; 5]);
    assert!(broadcast_to(Isa::best(), 4, &[2], &[3]).is_err());
    assert!(broadcast_to(Isa::best(), 4, &[2, 3], &[3]).is_err());
    assert!(tile(Isa::best(), 4, &[2, 3], &[3]).is_err());
    assert!(tile(Isa::best(), 4, &[2], &[u64::MAX]).is_err());
    assert!(fill(Isa::best(), 4, u64::MAX).is_err());
}

/// `(shape, begin, strides, out_shape)`.
type SliceCase<'a> = (&'a [u64], &'a [u64], &'a [i64], &'a [u64]);

const SLICES: &[SliceCase<'_>] = &[
    (&[], &[], &[], &[]),
    (&[10], &[2], &[3], &[3]),
    (&[10], &[9], &[-1], &[10]),
    (&[10], &[8], &[-4], &[3]),
    (&[4, 6], &[1, 2], &[1, 1], &[2, 3]),
    (&[4, 6], &[3, 0], &[-2, 2], &[2, 3]),
    (&[4, 6, 5], &[1, 0, 0], &[2, 1, 1], &[2, 6, 5]),
    (&[4, 6, 5], &[3, 5, 4], &[-1, -1, -1], &[4, 6, 5]),
    (&[4, 6, 5], &[0, 1, 0], &[1, 2, 1], &[4, 2, 5]),
    (&[4, 6], &[4, 6], &[1, 1], &[0, 0]),
    (&[4, 6], &[0, 6], &[1, 1], &[4, 0]),
    (&[0, 6], &[0, 0], &[1, 1], &[0, 6]),
    (&[300, 300], &[1, 2], &[1, 2], &[299, 149]),
];

#[test]
fn slices() {
    for &(shape, begin, strides, out_shape) in SLICES {
        let expected: Vec<_> = indices(out_shape).iter().map(|index| Some(place(shape, &source(begin, strides, index)))).collect();
        check(
            &format!("slice {shape:?} {begin:?} {strides:?}"),
            |size| strided_slice(Isa::best(), size, shape, begin, strides, out_shape),
            count(shape),
            &expected,
        );
    }
    assert_eq!(run_one(&slice(Isa::best(), 4, &[2, 3], &[0, 1], &[2, 2]).unwrap(), &[&ramp(6)], 4).unwrap(), [1, 2, 4, 5]);
    for (begin, strides, out_shape) in
        [(&[0, 0][..], &[1, 1][..], &[3, 2][..]), (&[1, 0], &[-1, 1], &[3, 2]), (&[0, 2], &[1, 1], &[1, 1]), (&[0, 0], &[0, 1], &[1, 1])]
    {
        assert!(strided_slice(Isa::best(), 4, &[2, 2], begin, strides, out_shape).is_err());
        assert!(strided_slice_grad(4, &[2, 2], begin, strides, out_shape).is_err());
    }
    assert!(strided_slice(Isa::best(), 4, &[2, 2], &[0], &[1, 1], &[1, 1]).is_err());
    assert!(strided_slice(Isa::best(), 4, &[2, 2], &[0, u64::MAX], &[1, i64::MIN], &[1, u64::MAX]).is_err());
}

fn source(begin: &[u64], strides: &[i64], index: &[u64]) -> Vec<u64> {
    begin.iter().zip(strides).zip(index).map(|((begin, stride), at)| (*begin as i64 + *at as i64 * stride) as u64).collect()
}

#[test]
fn a_slice_gradient_puts_the_block_back() {
    for &(shape, begin, strides, block_shape) in SLICES {
        let mut expected = vec![None; count(shape)];
        for (number, index) in indices(block_shape).iter().enumerate() {
            expected[place(shape, &source(begin, strides, index))] = Some(number);
        }
        let make = |size| strided_slice_grad(size, shape, begin, strides, block_shape);
        check(&format!("slice gradient {shape:?} {begin:?} {strides:?}"), make, count(block_shape), &expected);
    }
}

#[test]
fn reverses() {
    for (shape, axes) in [
        (&[][..], &[][..]),
        (&[7], &[0]),
        (&[100_000], &[0]),
        (&[3, 4], &[1]),
        (&[3, 4, 5], &[0, 2]),
        (&[3, 4, 5], &[1]),
        (&[3, 0], &[0, 1]),
        (&[30, 40, 50], &[0, 1, 2]),
    ] {
        let expected: Vec<_> = indices(shape)
            .iter()
            .map(|index| {
                let from: Vec<u64> =
                    index.iter().enumerate().map(|(axis, at)| if axes.contains(&axis) { shape[axis] - 1 - at } else { *at }).collect();
                Some(place(shape, &from))
            })
            .collect();
        check(&format!("reverse {shape:?} {axes:?}"), |size| reverse(Isa::best(), size, shape, axes), count(shape), &expected);
    }
    assert!(reverse(Isa::best(), 4, &[2], &[1]).is_err());
}

#[test]
fn pads() {
    for (shape, paddings) in [
        (&[][..], &[][..]),
        (&[3], &[(2, 1)][..]),
        (&[3], &[(0, 0)]),
        (&[2, 3], &[(1, 0), (0, 2)]),
        (&[2, 3, 4], &[(0, 0), (1, 1), (0, 0)]),
        (&[1, 8, 8, 3], &[(0, 0), (3, 3), (2, 4), (0, 0)]),
        (&[4, 100, 100, 3], &[(0, 0), (1, 1), (1, 1), (0, 0)]),
        (&[0, 3], &[(1, 1), (0, 1)]),
        (&[1, 1], &[(1, 0), (0, 1)]),
    ] {
        let out_shape: Vec<u64> = shape.iter().zip(paddings).map(|(size, (before, after))| before + size + after).collect();
        let expected: Vec<_> = indices(&out_shape)
            .iter()
            .map(|index| {
                let from: Option<Vec<u64>> =
                    (0..shape.len()).map(|axis| index[axis].checked_sub(paddings[axis].0).filter(|at| *at < shape[axis])).collect();
                from.map(|from| place(shape, &from))
            })
            .collect();
        check(&format!("pad {shape:?} {paddings:?}"), |size| pad(size, shape, paddings, &vec![0; size]), count(shape), &expected);
    }
    assert_eq!(run_one(&pad(4, &[2], &[(1, 2)], &5i32.to_le_bytes()).unwrap(), &[&[1i32, 2]], 5).unwrap(), [5, 1, 2, 5, 5]);
    assert_eq!(run_one(&pad_with_input(4, &[2], &[(1, 2)]).unwrap(), &[&[1i32, 2], &[9]], 5).unwrap(), [9, 1, 2, 9, 9]);
    assert!(pad(4, &[2], &[(1, 2)], &[0]).is_err());
    assert!(pad(4, &[2], &[], &[0; 4]).is_err());
    assert!(pad(4, &[2], &[(u64::MAX, 2)], &[0; 4]).is_err());
}

#[test]
fn concats_and_splits_are_inverse() {
    for (shapes, axis) in [
        (vec![&[3][..]], 0),
        (vec![&[3], &[0], &[4]], 0),
        (vec![&[2, 3], &[2, 1], &[2, 4]], 1),
        (vec![&[2, 3], &[5, 3]], 0),
        (vec![&[4, 2, 3], &[4, 1, 3], &[4, 7, 3]], 1),
        (vec![&[64, 300], &[64, 500]], 1),
        (vec![&[0, 3], &[0, 4]], 1),
        (vec![&[100_003], &[7]], 0),
    ] {
        for size in [1usize, 4, 16] {
            let inputs: Vec<Vec<u8>> = shapes
                .iter()
                .enumerate()
                .map(|(number, shape)| (0..count(shape) * size).map(|at| (at + 100 * number) as u8).collect())
                .collect();
            let row = |part: usize| shapes[part][axis..].iter().product::<u64>() as usize * size;
            let outer: u64 = shapes[0][..axis].iter().product();
            let expected: Vec<u8> = (0..outer as usize)
                .flat_map(|at| {
                    (0..shapes.len()).flat_map(|part| inputs[part][at * row(part)..(at + 1) * row(part)].to_vec()).collect::<Vec<_>>()
                })
                .collect();
            let prepared = concat(size, &shapes, axis).unwrap();
            let calls: Vec<_> = (0..prepared.chunks).map(|piece| piece..piece + 1).collect();
            let mut output = [vec![0; expected.len()]];
            run_pieces(&prepared, &inputs.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut output, &calls, &[]).unwrap();
            assert!(output[0] == expected, "{shapes:?} along {axis}");

            let mut whole = shapes[0].to_vec();
            let parts: Vec<u64> = shapes.iter().map(|shape| shape[axis]).collect();
            whole[axis] = parts.iter().sum();
            let mut back: Vec<Vec<u8>> = inputs.iter().map(|input| vec![0; input.len()]).collect();
            let prepared = split_sizes(size, &whole, axis, &parts).unwrap();
            let calls: Vec<_> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
            run_pieces(&prepared, &[&expected], &mut back, &calls, &[]).unwrap();
            assert!(back == inputs, "{shapes:?} apart along {axis}");
        }
    }
    assert!(concat(4, &[], 0).is_err());
    assert!(concat(4, &[&[2]], 1).is_err());
    assert!(concat(4, &[&[2, 3], &[3, 3]], 1).is_err());
    assert!(split(4, &[5], 0, 2).is_err());
    assert!(split(4, &[5], 0, 0).is_err());
    assert!(split_sizes(4, &[5], 0, &[2, 2]).is_err());
    assert!(split_sizes(4, &[5], 1, &[5]).is_err());
    assert!(split_sizes(4, &[5], 0, &[u64::MAX, 6]).is_err());
}

#[test]
fn packs_and_unpacks() {
    let (a, b) = ([1i32, 2, 3], [4, 5, 6]);
    assert_eq!(run_one(&pack(4, &[3], 2, 0).unwrap(), &[&a, &b], 6).unwrap(), [1, 2, 3, 4, 5, 6]);
    let packed = run_one(&pack(4, &[3], 2, 1).unwrap(), &[&a, &b], 6).unwrap();
    assert_eq!(packed, [1, 4, 2, 5, 3, 6]);
    let mut outputs = [vec![0; 12], vec![0; 12]];
    run(&unpack(4, &[3, 2], 1).unwrap(), &[&bytes(&packed)], &mut outputs).unwrap();
    assert_eq!([values::<i32>(&outputs[0]), values(&outputs[1])], [a, b]);
    assert_eq!(run_one(&pack(4, &[], 2, 0).unwrap(), &[&[1i32], &[2]], 2).unwrap(), [1, 2]);
    assert!(pack(4, &[3], 2, 2).is_err());
    assert!(pack(4, &[3], 0, 0).is_err());
    assert!(unpack(4, &[3], 1).is_err());
}

#[test]
fn a_view_of_everything_may_stay_where_it_is() {
    for prepared in [
        transpose(Isa::best(), 4, &[2, 1, 3], &[1, 0, 2]),
        broadcast_to(Isa::best(), 4, &[6], &[1, 6]),
        slice(Isa::best(), 4, &[6], &[0], &[6]),
    ] {
        let prepared = prepared.unwrap();
        assert_eq!(prepared.in_place, [(0, 0)]);
        let mut output = [vec![0; 24]];
        run_pieces(&prepared, &[&bytes(&ramp(6))], &mut output, std::slice::from_ref(&(0..prepared.chunks)), &[(0, 0)]).unwrap();
        assert_eq!(values::<u32>(&output[0]), ramp(6));
    }
    for prepared in
        [transpose(Isa::best(), 4, &[2, 3], &[1, 0]), slice(Isa::best(), 4, &[6], &[0], &[5]), reverse(Isa::best(), 4, &[6], &[0])]
    {
        assert!(prepared.unwrap().in_place.is_empty());
    }
}
