//! Works on the same rows are one, with the bits of each by itself.

use std::sync::Arc;

use plimsoll_base::{DataType, Random};
use plimsoll_cards::Options;
use plimsoll_device::Work;
use plimsoll_graph::{AttrValue, HostTensor, Output, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Signature};
use plimsoll_request::KernelRequest;
use plimsoll_runtime::{Devices, Session};
use proptest::prelude::*;

/// A session of operations on rows that numbers choose, and the tensors that they make.
struct Network {
    session: Session,
    shape: Vec<u64>,
    made: Vec<String>,
}

fn network(registry: Registry, shape: [u64; 3], choices: &[[usize; 3]]) -> Network {
    let mut g = GraphBuilder::new(Arc::new(registry));
    let x = g.placeholder("x", DataType::Float, &Shape::new(shape)).build().unwrap();
    let scale = g.placeholder("scale", DataType::Float, &Shape::new([shape[2]])).build().unwrap();
    // Tensors of all elements, and those of one for each row.
    let (mut wide, mut narrow): (Vec<Output>, Vec<Output>) = (vec![x], Vec::new());
    let mut made = Vec::new();
    for [op, first, second] in choices {
        let of = |tensors: &[Output], number: &usize| tensors[tensors.len() - 1 - number.min(&(tensors.len() - 1))];
        let any = |number: &usize| match number % 3 {
            0 if !narrow.is_empty() => of(&narrow, &(number / 3)),
            1 => scale,
            _ => of(&wide, &(number / 3)),
        };
        let tensor = match op {
            0..3 => {
                let axes = HostTensor::from_slice([1], &[-1i32]).unwrap();
                let reduced = g.op(["Mean", "Sum", "Max"][*op]).input(of(&wide, first)).constant_input("axes", axes);
                reduced.attr("keep_dims", AttrValue::Bool(true)).build().unwrap()
            }
            3 => g.op("Softmax").input(of(&wide, first)).build().unwrap(),
            4 if !narrow.is_empty() => g.op("Tanh").input(of(&narrow, first)).build().unwrap(),
            5 if !narrow.is_empty() => g.op("Mul").inputs([of(&narrow, first), of(&narrow, second)]).build().unwrap(),
            op => g.op(["Mul", "Sub", "AddV2", "SquaredDifference"][op % 4]).inputs([of(&wide, first), any(second)]).build().unwrap(),
        };
        let is_narrow = matches!(op, 0..3) || (matches!(op, 4 | 5) && !narrow.is_empty());
        if is_narrow { &mut narrow } else { &mut wide }.push(tensor);
        made.push(g.node(tensor.node).name.clone());
    }
    let registry = g.registry().clone();
    let session = Session::new(&Devices::open(&Options::new()).unwrap(), &g.finish(), registry).unwrap();
    Network { session, shape: shape.to_vec(), made }
}

impl Network {
    fn run(&self, fetches: &[&str]) -> Vec<Vec<u32>> {
        let numbers = |shape: &[u64], seed: u64| {
            let mut random = Random::new(seed);
            let count = shape.iter().product::<u64>();
            let numbers: Vec<f32> = (0..count).map(|_| (random.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect();
            HostTensor::from_slice(shape.to_vec(), &numbers).unwrap()
        };
        let feeds = [("x", numbers(&self.shape, 1)), ("scale", numbers(&self.shape[2..], 2))];
        let feeds: Vec<(&str, &HostTensor)> = feeds.iter().map(|(name, tensor)| (*name, tensor)).collect();
        let bits = |tensor: &HostTensor| tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect();
        self.session.run(&feeds, fetches, &[]).unwrap().iter().map(bits).collect()
    }

    /// How many commands a step for these has, and how many of them are of rows.
    fn commands(&self, fetches: &[&str]) -> (usize, usize) {
        let feed = |tensor: &str, shape: &[u64]| Feed {
            tensor: tensor.into(),
            data_type: DataType::Float,
            shape: Shape::new(shape.to_vec()),
            value: None,
        };
        let signature = Signature {
            feeds: vec![feed("x", &self.shape), feed("scale", &self.shape[2..])],
            fetches: fetches.iter().map(|fetch| fetch.to_string()).collect(),
            ..Signature::default()
        };
        let plan = self.session.plan_signature(&signature).unwrap();
        let kernels = plan.queues.iter().flat_map(|queue| &queue.program.commands).filter_map(|command| match &command.work {
            Work::Kernel(call) => Some(matches!(*call.request, KernelRequest::RowWise(_))),
            _ => None,
        });
        kernels.fold((0, 0), |(all, of_rows), is_of_rows| (all + 1, of_rows + usize::from(is_of_rows)))
    }
}

fn standard() -> Registry {
    Registry::standard(Arc::new(CpuKernels))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn works_on_rows_have_the_bits_of_each_by_itself(
        shape in [1u64..4, 20u64..70, 5u64..40],
        choices in prop::collection::vec([0usize..12, 0usize..4, 0usize..9], 2..14),
        kept in any::<u32>(),
    ) {
        let joined = network(standard(), shape, &choices);
        let apart = network(standard().with_most_fusions(0), shape, &choices);
        let fetches: Vec<&str> = joined.made.iter().enumerate().filter(|(at, _)| at + 1 == joined.made.len() || kept >> at & 7 == 7).map(|(_, name)| &**name).collect();
        prop_assert_eq!(joined.run(&fetches), apart.run(&fetches));
    }
}

#[test]
fn a_layer_normalization_is_one_command() {
    // The mean, the squares of differences, their mean, and what is left of x.
    let choices = [[0, 0, 0], [11, 0, 0], [0, 0, 0], [4, 0, 0], [9, 1, 6], [8, 0, 0], [6, 0, 1]];
    let network = network(standard(), [4, 20, 32], &choices);
    assert_eq!(network.commands(&[network.made.last().unwrap()]), (1, 1));
}
