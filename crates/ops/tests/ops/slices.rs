//! Slices by places of which some are known.

use std::sync::Arc;

use crate::common::interpret::Interpreter;
use plimsoll_base::DataType;
use plimsoll_graph::{AttrValue, HostTensor, Output, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Registry};

fn scalar(builder: &mut GraphBuilder, value: i32) -> Output {
    builder.constant(HostTensor::from_slice(Shape::scalar(), &[value]).unwrap()).build().unwrap()
}

/// `x[i, 1:3, 2:]`, where `i` is fed: the range's ends are known though the vectors are not.
#[test]
fn a_range_beside_a_computed_index() {
    let mut builder = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let mut feed = |data_type, shape: &[u64]| {
        let shape = PartialShape::from(&Shape::from(shape.to_vec()));
        let node = builder.op("Placeholder").attr("dtype", AttrValue::data_type(data_type)).attr("shape", AttrValue::Shape(shape));
        node.build().unwrap()
    };
    let (x, index) = (feed(DataType::Float, &[2, 4, 3]), feed(DataType::Int32, &[]));
    let [zero, one, two, three] = [0, 1, 2, 3].map(|value| scalar(&mut builder, value));
    let next = builder.op("AddV2").inputs([index, one]).build().unwrap();
    let begin = builder.op("Pack").inputs([index, one, two]).build().unwrap();
    let end = builder.op("Pack").inputs([next, three, zero]).build().unwrap();
    let strides = builder.op("Pack").inputs([one, one, one]).build().unwrap();
    let slice = builder.op("StridedSlice").inputs([x, begin, end, strides]);
    let slice = slice.attr("shrink_axis_mask", AttrValue::Int(1)).attr("end_mask", AttrValue::Int(4)).build().unwrap();
    assert_eq!(builder.fact(slice).shape.complete(), Some(Shape::from([2, 1])));

    let elements: Vec<f32> = (0..24u8).map(f32::from).collect();
    for (place, expected) in [(0i32, [5.0, 8.0]), (-1, [17.0, 20.0])] {
        let x_value = HostTensor::from_slice(Shape::from([2, 4, 3]), &elements).unwrap();
        let index_value = HostTensor::from_slice(Shape::scalar(), &[place]).unwrap();
        let value = Interpreter::new(&builder, [(x, x_value), (index, index_value)]).value(slice).unwrap();
        assert_eq!(value.to_vec::<f32>().unwrap(), expected);
    }
}
