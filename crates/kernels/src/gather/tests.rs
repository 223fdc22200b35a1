use super::*;
use crate::testing::{bytes, run, run_pieces, values};
use plimsoll_device::{Fault, Prepared};
use plimsoll_request::block::{Begin, Block, Outside};
use plimsoll_request::gather::{Access, Gather, ScatterOp, SegmentOp};

/// A scatter by single integers.
fn scatter(
    op: ScatterOp,
    data_type: DataType,
    index_type: DataType,
    shape: &[u64],
    indices: u64,
    scalar_updates: bool,
) -> Result<Prepared> {
    let shape = shape.to_vec();
    super::scatter(&Gather::Scatter { op, data_type, index_type, shape, indices, depth: 1, scalar_updates, ignore: false, in_place: false })
}

fn run_i32(prepared: &Prepared, inputs: &[&[u8]], len: usize) -> std::result::Result<Vec<i32>, Fault> {
    let mut outputs = [vec![0xEE; len * 4]];
    run(prepared, inputs, &mut outputs)?;
    let calls: Vec<_> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
    let mut again = [vec![0xEE; len * 4]];
    run_pieces(prepared, inputs, &mut again, &calls, &[])?;
    assert_eq!(outputs, again);
    Ok(values(&outputs[0]))
}

#[test]
fn gathers_along_any_axis_with_batches() {
    for (params, indices, axis, batch_dims) in [
        (&[5u64][..], &[][..], 0, 0),
        (&[5], &[7], 0, 0),
        (&[5, 3], &[2, 4], 0, 0),
        (&[5, 3], &[4], 1, 0),
        (&[2, 5, 3], &[4], 1, 0),
        (&[2, 5, 3], &[2, 4], 1, 1),
        (&[2, 4, 5, 3], &[2, 6], 2, 1),
        (&[2, 4, 5], &[2, 4, 6], 2, 2),
        (&[5, 3], &[0], 0, 0),
        (&[5, 0], &[3], 0, 0),
        (&[1000, 64], &[3000], 0, 0),
    ] {
        let size = |shape: &[u64]| shape.iter().product::<u64>() as usize;
        let data: Vec<i32> = (0..size(params) as i32).collect();
        let limit = params[axis] as i32;
        let index: Vec<i32> = (0..size(indices) as i32).map(|at| (at * 7 + 3) % limit).collect();
        let (outer, inner) = (size(&params[batch_dims..axis]), size(&params[axis + 1..]));
        let (batches, taken) = (size(&params[..batch_dims]), size(&indices[batch_dims..]));
        let mut expected = Vec::new();
        for batch in 0..batches {
            for outer in batch * outer..(batch + 1) * outer {
                for at in &index[batch * taken..(batch + 1) * taken] {
                    expected.extend_from_slice(&data[(outer * limit as usize + *at as usize) * inner..][..inner]);
                }
            }
        }
        let prepared = gather(4, params, indices, axis, batch_dims, DataType::Int32).unwrap();
        assert_eq!(
            run_i32(&prepared, &[&bytes(&data), &bytes(&index)], expected.len()).unwrap(),
            expected,
            "{params:?} {indices:?} {axis}"
        );
        let wide: Vec<i64> = index.iter().map(|at| i64::from(*at)).collect();
        let prepared = gather(4, params, indices, axis, batch_dims, DataType::Int64).unwrap();
        assert_eq!(run_i32(&prepared, &[&bytes(&data), &bytes(&wide)], expected.len()).unwrap(), expected);
    }
}

#[test]
fn a_wrong_index_is_a_fault() {
    let prepared = gather(4, &[3], &[2], 0, 0, DataType::Int32).unwrap();
    for bad in [-1, 3, i32::MIN, i32::MAX] {
        let fault = run_i32(&prepared, &[&bytes(&[1, 2, 3]), &bytes(&[0, bad])], 2).unwrap_err();
        assert_eq!(fault.to_error().to_string(), "INVALID_ARGUMENT: indices[1] is not in [0, 3)");
    }
    let none = gather(4, &[0, 3], &[1], 0, 0, DataType::Int32).unwrap();
    assert!(run_i32(&none, &[&[], &bytes(&[0])], 3).is_err());
    // Nothing is taken, so nothing is looked up: as TensorFlow.
    let nothing = gather(4, &[2, 0], &[1], 0, 0, DataType::Int32).unwrap();
    assert_eq!(run_i32(&nothing, &[&[], &bytes(&[7])], 0).unwrap(), [0i32; 0]);
    assert!(gather(4, &[3], &[2], 1, 0, DataType::Int32).is_err());
    assert!(gather(4, &[3, 4], &[2], 1, 1, DataType::Int32).is_err());
    assert!(gather(4, &[3], &[2], 0, 0, DataType::Float).is_err());
    assert!(gather(5, &[3], &[2], 0, 0, DataType::Int32).is_err());
}

#[test]
fn segments_of_rows() {
    let data = [1, 2, 3, 4, 5, 6, 7, 8];
    let ids = [2, -1, 2, 0];
    let segment = |op| {
        let prepared = unsorted_segment(op, DataType::Int32, DataType::Int32, &[4, 2], &[4], 4).unwrap();
        run_i32(&prepared, &[&bytes(&data), &bytes(&ids)], 8).unwrap()
    };
    let (low, high) = (i32::MIN, i32::MAX);
    assert_eq!(segment(SegmentOp::Sum), [7, 8, 0, 0, 6, 8, 0, 0]);
    assert_eq!(segment(SegmentOp::Prod), [7, 8, 1, 1, 5, 12, 1, 1]);
    assert_eq!(segment(SegmentOp::Max), [7, 8, low, low, 5, 6, low, low]);
    assert_eq!(segment(SegmentOp::Min), [7, 8, high, high, 1, 2, high, high]);
    let whole = unsorted_segment(SegmentOp::Sum, DataType::Int32, DataType::Int32, &[4, 2], &[4, 2], 2).unwrap();
    assert_eq!(run_i32(&whole, &[&bytes(&data), &bytes(&[0, 1, 0, 1, 1, 1, -5, 0])], 2).unwrap(), [1 + 3 + 8, 2 + 4 + 5 + 6]);
    let fault = run_i32(&whole, &[&bytes(&data), &bytes(&[0, 2, 0, 1, 1, 1, -5, 0])], 2).unwrap_err();
    assert_eq!(fault.to_error().message(), "segment_ids[1] is out of range [0, 2)");
    let none = unsorted_segment(SegmentOp::Sum, DataType::Int32, DataType::Int64, &[0, 2], &[0], 3).unwrap();
    assert_eq!(run_i32(&none, &[&[], &[]], 6).unwrap(), [0; 6]);
    assert!(unsorted_segment(SegmentOp::Sum, DataType::Int32, DataType::Int64, &[2, 2], &[3], 3).is_err());
    assert!(unsorted_segment(SegmentOp::Sum, DataType::String, DataType::Int64, &[2], &[2], 3).is_err());
}

#[test]
fn an_embedding_gradient_in_pieces() {
    let (n, inner, segments) = (2000usize, 96usize, 500usize);
    let data: Vec<f32> = (0..n * inner).map(|at| ((at * 7919) % 1000) as f32 / 499.0 - 1.0).collect();
    let ids: Vec<i64> = (0..n).map(|at| ((at * 331) % (segments + 7)) as i64 - 7).collect();
    let mut expected = vec![0f32; segments * inner];
    for (row, id) in data.chunks(inner).zip(&ids).filter(|(_, id)| **id >= 0) {
        row.iter().zip(&mut expected[*id as usize * inner..]).for_each(|(new, sum)| *sum += new);
    }
    let prepared =
        unsorted_segment(SegmentOp::Sum, DataType::Float, DataType::Int64, &[n as u64, inner as u64], &[n as u64], segments as u64)
            .unwrap();
    assert!(prepared.chunks > 1);
    let calls: Vec<_> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
    let mut outputs = [vec![0xEE; expected.len() * 4]];
    run_pieces(&prepared, &[&bytes(&data), &bytes(&ids)], &mut outputs, &calls, &[]).unwrap();
    assert_eq!(values::<f32>(&outputs[0]), expected);
}

#[test]
fn scatters_into_a_variable() {
    let variable = [10, 20, 30, 40, 50, 60];
    let (indices, updates) = ([2i64, 0, 2], [1, 2, 3, 4, 5, 6]);
    for (op, expected) in [
        (ScatterOp::Update, [3, 4, 30, 40, 5, 6]),
        (ScatterOp::Add, [13, 24, 30, 40, 56, 68]),
        (ScatterOp::Sub, [7, 16, 30, 40, 44, 52]),
        (ScatterOp::Mul, [30, 80, 30, 40, 250, 720]),
        (ScatterOp::Div, [3, 5, 30, 40, 10, 5]),
        (ScatterOp::Min, [3, 4, 30, 40, 1, 2]),
        (ScatterOp::Max, [10, 20, 30, 40, 50, 60]),
    ] {
        let prepared = scatter(op, DataType::Int32, DataType::Int64, &[3, 2], 3, false).unwrap();
        let inputs = [&bytes(&variable)[..], &bytes(&indices), &bytes(&updates)];
        assert_eq!(run_i32(&prepared, &inputs, 6).unwrap(), expected, "{op:?}");
        assert_eq!(prepared.in_place, [(0, 0)]);
        let mut outputs = [vec![0; 24]];
        run_pieces(&prepared, &inputs, &mut outputs, std::slice::from_ref(&(0..prepared.chunks)), &[(0, 0)]).unwrap();
        assert_eq!(values::<i32>(&outputs[0]), expected, "{op:?} in place");
    }
    let one = scatter(ScatterOp::Add, DataType::Int32, DataType::Int32, &[3], 3, true).unwrap();
    assert_eq!(run_i32(&one, &[&bytes(&[1, 2, 3]), &bytes(&[0, 0, 2]), &bytes(&[5])], 3).unwrap(), [11, 2, 8]);
    let fault = run_i32(&one, &[&bytes(&[1, 2, 3]), &bytes(&[0, -1, 2]), &bytes(&[5])], 3).unwrap_err();
    assert_eq!(fault.to_error().message(), "indices[1] is not in [0, 3)");
    let divide = scatter(ScatterOp::Div, DataType::Int32, DataType::Int32, &[3], 1, false).unwrap();
    assert!(run_i32(&divide, &[&bytes(&[1, 2, 3]), &bytes(&[1]), &bytes(&[0])], 3).is_err());
    assert!(scatter(ScatterOp::Add, DataType::Int32, DataType::Int32, &[], 1, false).is_err());
    assert!(scatter(ScatterOp::Add, DataType::Bool, DataType::Int32, &[1], 1, false).is_err());
}

/// Marks of three elements after an access to some of them.
fn mark(access: Access, index: &[i32], marks: [u8; 3], update: u8) -> std::result::Result<Vec<u8>, Fault> {
    let op = ScatterOp::Mark(access);
    let prepared = scatter(op, DataType::Uint8, DataType::Int32, &[3], index.len() as u64, true).unwrap();
    let mut outputs = [vec![0; 3]];
    run(&prepared, &[&marks, &bytes(index), &[update]], &mut outputs).map(|()| outputs[0].clone())
}

#[test]
fn marks_an_element_once() {
    for (access, said) in [(Access::Write, "because it has already been written to"), (Access::Read, "because it was cleared")] {
        assert_eq!(mark(access, &[2, 0], [0, 1, 0], 1).unwrap(), [1, 1, 1]);
        assert_eq!(mark(access, &[1], [0, 1, 0], 0).unwrap(), [0, 1, 0], "an update of 0 marks nothing, and never fails");
        for (index, marks) in [(&[1][..], [0, 1, 0]), (&[2, 2], [0, 0, 0])] {
            let fault = mark(access, index, marks, 1).unwrap_err().to_error();
            assert!(fault.message().contains(said) && fault.message().contains(&format!("index {}", index[0])), "{fault}");
        }
        assert!(mark(access, &[3], [0, 0, 0], 1).is_err());
        assert!(scatter(ScatterOp::Mark(access), DataType::Int32, DataType::Int32, &[3], 1, true).is_err());
    }
}

#[test]
fn asks_whether_an_element_is_marked() {
    assert_eq!(mark(Access::ReadWritten, &[1, 1], [0, 1, 0], 1).unwrap(), [0, 1, 0]);
    assert_eq!(mark(Access::ReadWritten, &[0], [0, 1, 0], 0).unwrap(), [0, 1, 0]);
    let fault = mark(Access::ReadWritten, &[1, 2], [0, 1, 0], 1).unwrap_err().to_error();
    assert!(fault.message().contains("index 2, which was not written"), "{fault}");
}

#[test]
fn blocks_in_pieces() {
    let shape = vec![200, 30, 40];
    let data: Vec<i32> = (0..240_000).collect();
    let block_of = |begins: Vec<Begin>, sizes: Vec<u64>| Block {
        shape: shape.clone(),
        begins,
        strides: vec![1; 3],
        sizes,
        names: Some((DataType::Int32, 2)),
    };
    let named = |position| Begin::Named { position, outside: Outside::FromEnd };
    let block = block_of(vec![Begin::At(3), named(1), Begin::At(2)], vec![190, 1, 35]);
    let at = |row: usize, column: usize| ((row + 3) * 30 + 17) * 40 + column + 2;
    let expected: Vec<i32> = (0..190 * 35).map(|element| data[at(element / 35, element % 35)]).collect();
    let take = super::block(4, &block).unwrap();
    assert_eq!(run_i32(&take, &[&bytes(&data), &bytes(&[9, -13])], expected.len()).unwrap(), expected);
    let fault = run_i32(&take, &[&bytes(&data), &bytes(&[0, 31])], expected.len()).unwrap_err();
    assert_eq!(fault.to_error().message(), "slice index 31 of dimension 1 out of bounds.");

    for onto in [false, true] {
        let put = embed(4, &block, &[190, 1, 1], onto).unwrap();
        assert!(put.chunks > 1 && put.in_place.len() == usize::from(onto));
        let column: Vec<i32> = (0..190).map(|row| -1 - row).collect();
        let mut whole = if onto { data.clone() } else { vec![0; data.len()] };
        (0..190 * 35).for_each(|element| whole[at(element / 35, element % 35)] = column[element / 35]);
        let (data, names, column) = (bytes(&data), bytes(&[9, 17]), bytes(&column));
        let inputs: Vec<&[u8]> = if onto { vec![&data, &names, &column] } else { vec![&names, &column] };
        assert_eq!(run_i32(&put, &inputs, whole.len()).unwrap(), whole);
    }
    let too_large = block_of(vec![Begin::At(11), named(0), Begin::At(0)], vec![190, 1, 35]);
    assert!(super::block(4, &too_large).is_err());
    let no_name = block_of(vec![Begin::At(0), named(2), Begin::At(0)], vec![1, 1, 1]);
    assert!(super::block(4, &no_name).is_err());
}

#[test]
fn indices_of_several_integers() {
    let data: Vec<i32> = (0..12).collect();
    let take = |ignore| gather_nd(4, &[2, 3, 2], 3, 2, DataType::Int64, ignore).unwrap();
    let indices = [1i64, 2, 0, 3, 0, 1];
    assert_eq!(run_i32(&take(true), &[&bytes(&data), &bytes(&indices)], 6).unwrap(), [10, 11, 0, 0, 2, 3]);
    let fault = run_i32(&take(false), &[&bytes(&data), &bytes(&indices)], 6).unwrap_err();
    assert_eq!(fault.to_error().message(), "indices[1] does not index into param shape");
    let scatter = |ignore| {
        let (op, data_type, index_type) = (ScatterOp::Add, DataType::Int32, DataType::Int64);
        let request = Gather::Scatter {
            op,
            data_type,
            index_type,
            shape: vec![2, 3],
            indices: 3,
            depth: 2,
            scalar_updates: false,
            ignore,
            in_place: false,
        };
        let inputs = [&bytes(&[0, 0, 0, 0, 0, 0])[..], &bytes(&indices), &bytes(&[5, 6, 7])];
        run_i32(&super::scatter(&request).unwrap(), &inputs, 6)
    };
    assert_eq!(scatter(true).unwrap(), [0, 7, 0, 0, 0, 5]);
    assert_eq!(scatter(false).unwrap_err().to_error().message(), "indices[1] does not index into shape");
}

#[test]
fn updates_that_take_no_memory_take_no_time() {
    let scatter = |shape: &[u64], indices, scalar_updates| {
        let (op, data_type, index_type, shape) = (ScatterOp::Add, DataType::Int32, DataType::Int64, shape.to_vec());
        super::scatter(&Gather::Scatter {
            op,
            data_type,
            index_type,
            shape,
            indices,
            depth: 0,
            scalar_updates,
            ignore: false,
            in_place: false,
        })
    };
    assert_eq!(run_i32(&scatter(&[0, 3], 1 << 40, false).unwrap(), &[&[], &[], &[]], 0).unwrap(), [0i32; 0]);
    assert_eq!(run_i32(&scatter(&[2], 3, true).unwrap(), &[&bytes(&[1, 2]), &[], &bytes(&[5])], 2).unwrap(), [16, 17]);
    assert_eq!(scatter(&[2], 1 << 40, true).unwrap_err().code(), plimsoll_base::Code::Unimplemented);
}

#[test]
fn few_rows_where_the_variable_lies_are_cut_into_columns() {
    for (op, indices, inner, scalar_updates) in [
        (ScatterOp::Update, &[3i32][..], 70_000usize, false),
        (ScatterOp::Add, &[1, 4, 1], 33_001, false),
        (ScatterOp::Mul, &[0, 0], 40_000, true),
        (ScatterOp::Update, &[2], 3, false),
        (ScatterOp::Update, &[], 3, false),
        (ScatterOp::Update, &[1], 0, false),
    ] {
        let request = |in_place| Gather::Scatter {
            op,
            data_type: DataType::Int32,
            index_type: DataType::Int32,
            shape: vec![5, inner as u64],
            indices: indices.len() as u64,
            depth: 1,
            scalar_updates,
            ignore: false,
            in_place,
        };
        let variable: Vec<i32> = (0..5 * inner as i32).collect();
        let updates: Vec<i32> = (0..if scalar_updates { 1 } else { indices.len() * inner } as i32).map(|at| 7 - 3 * at).collect();
        let inputs = [&bytes(&variable)[..], &bytes(indices), &bytes(&updates)];
        let expected = run_i32(&super::scatter(&request(false)).unwrap(), &inputs, variable.len()).unwrap();
        let prepared = super::scatter(&request(true)).unwrap();
        assert_eq!(prepared.chunks > 1, inner > 3, "{op:?} of {inner}");
        // A plan from a file may say what does not hold.
        assert_eq!(run_i32(&prepared, &inputs, variable.len()).unwrap(), expected);
        let calls: Vec<_> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
        let mut outputs = [vec![0xEE; variable.len() * 4]];
        run_pieces(&prepared, &inputs, &mut outputs, &calls, &[(0, 0)]).unwrap();
        assert_eq!(values::<i32>(&outputs[0]), expected);
    }
    let (data_type, index_type) = (DataType::Int32, DataType::Int32);
    let request = Gather::Scatter {
        op: ScatterOp::Update,
        data_type,
        index_type,
        shape: vec![5, 2],
        indices: 2,
        depth: 1,
        scalar_updates: false,
        ignore: false,
        in_place: true,
    };
    let inputs = [&bytes(&[0i32; 10])[..], &bytes(&[1i32, 5]), &bytes(&[1i32; 4])];
    let fault = run_i32(&super::scatter(&request).unwrap(), &inputs, 10).unwrap_err();
    assert_eq!(fault.to_error().message(), "indices[1] is not in [0, 5)");
}
