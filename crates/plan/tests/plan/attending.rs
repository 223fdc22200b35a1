//! Attention of narrow floats as one work, and its gradient as another, for a library that computes these: where the pattern is there, and where
//! something else needs a value of it.

mod dropping;
mod hidden;
mod lying;

use std::sync::Arc;

use plimsoll_base::{DataType, Result};
use plimsoll_cards::Options;
use plimsoll_device::{Costs, DeviceSpec, InstructionSet, Library, Variant, Work};
use plimsoll_graph::{AttrValue, HostTensor, Output, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Lines, OpenRequest, PlaceOptions, Plan, PlanFile, Request, Signature, place, plan};
use plimsoll_request::KernelRequest;
use plimsoll_request::scaled_attention::{Lies, ScaledAttention, ScoreBias};

use crate::libraries::Abacus;

/// The processor's, and attention.
#[derive(Debug)]
struct Attending;

impl Library for Attending {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        match request {
            KernelRequest::ScaledAttention(_) | KernelRequest::ScaledAttentionGrad(_) => Abacus.variants(spec, request),
            _ => CpuKernels.variants(spec, request),
        }
    }
}

/// A graph of one attention.
struct Making {
    g: GraphBuilder,
    of: DataType,
    feeds: Vec<Feed>,
    operands: Vec<Output>,
    /// What is fetched beside what there always is.
    fetched: Vec<Output>,
    wanted: Vec<Output>,
}

/// What is done between the products.
type Between = fn(&mut Making, Output) -> Output;

impl Making {
    fn fed(&mut self, name: &str, shape: &[u64]) -> Output {
        let shape = Shape::new(shape);
        let fed = self.g.placeholder(name, DataType::Float, &shape).build().unwrap();
        self.feeds.push(Feed { tensor: name.into(), data_type: DataType::Float, shape, value: None });
        fed
    }

    fn op(&mut self, op: &str, inputs: &[Output]) -> Output {
        self.g.op(op).inputs(inputs.to_vec()).build().unwrap()
    }

    fn cast(&mut self, value: Output, to: DataType) -> Output {
        self.g.op("Cast").input(value).attr("DstT", AttrValue::data_type(to)).build().unwrap()
    }

    fn number(&mut self, value: f32) -> Output {
        self.g.constant(HostTensor::scalar(value)).build().unwrap()
    }

    fn product(&mut self, a: Output, b: Output, adj_y: bool) -> Output {
        self.g.op("BatchMatMulV2").inputs([a, b]).attr("adj_y", AttrValue::Bool(adj_y)).build().unwrap()
    }

    fn scaled(&mut self, scores: Output) -> Output {
        let (floats, half) = (self.cast(scores, DataType::Float), self.number(0.5));
        self.op("Mul", &[floats, half])
    }
}

/// The plan of attention of these sizes, and with `is_trained` of the gradients that are wanted.
fn planned(shape: &[u64], is_trained: bool, score: Between, share: Between) -> Plan {
    planned_with(shape, is_trained, true, score, share)
}

fn planned_with(shape: &[u64], is_trained: bool, adj_y: bool, score: Between, share: Between) -> Plan {
    planned_of(shape, is_trained, |m, [q, k, v]| {
        let scores = m.product(q, k, adj_y);
        let scores = score(m, scores);
        let shares = m.op("Softmax", &[scores]);
        let shares = share(m, shares);
        m.product(shares, v, false)
    })
}

/// The plan of what is made of Q, K and V of this shape.
fn planned_of(shape: &[u64], is_trained: bool, made: impl FnOnce(&mut Making, [Output; 3]) -> Output) -> Plan {
    let g = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let mut m = Making { g, of: DataType::Bfloat16, feeds: Vec::new(), operands: Vec::new(), fetched: Vec::new(), wanted: Vec::new() };
    for name in ["q", "k", "v"] {
        let fed = m.fed(name, shape);
        m.wanted.push(fed);
        let narrow = m.cast(fed, m.of);
        m.operands.push(narrow);
    }
    let [q, k, v] = m.operands[..] else { unreachable!() };
    let result = made(&mut m, [q, k, v]);
    let loss = m.cast(result, DataType::Float);
    let squares = m.op("Square", &[loss]);
    let mut fetches = vec![squares];
    if is_trained {
        let wanted = m.wanted.clone();
        fetches.extend(m.g.gradients(&[squares], &wanted).unwrap().into_iter().flatten());
    }
    fetches.extend(m.fetched.clone());
    let name = |output: &Output| format!("{}:{}", m.g.node(output.node).name, output.index);
    let fetches = fetches.iter().map(name).collect();
    let signature = Signature { feeds: m.feeds, fetches, ..Signature::default() };
    let devices = [Options::new().intra_op(1).resolve_on(1, InstructionSet::Avx2).unwrap().remove(0)];
    let (registry, graph) = (m.g.registry().clone(), m.g.finish());
    let placement = place(&graph, &registry, &devices, &PlaceOptions::new(true)).unwrap();
    let (graph, registry, libraries): (_, _, [&dyn Library; 1]) = (&graph, &*registry, [&Attending]);
    let (devices, libraries, costs) = (&devices[..], &libraries[..], &Costs::committed());
    let request = Request { graph, registry, devices, libraries, costs, placement: &placement, signature: &signature, lines: &Lines::NONE };
    let planned = plan(&request).unwrap();
    let open = OpenRequest { graph, registry, devices, libraries };
    let json = PlanFile::new(&open, &signature, &planned).unwrap().to_json().unwrap();
    let (_, opened) = PlanFile::from_json(&json).unwrap().open(&open).unwrap();
    assert_eq!(opened.to_string(), planned.to_string());
    planned
}

/// Attention and gradients of a plan.
fn found(plan: &Plan) -> (Vec<ScaledAttention>, usize) {
    let (mut forward, mut gradients) = (Vec::new(), 0);
    for command in plan.queues.iter().flat_map(|queue| &queue.program.commands) {
        let Work::Kernel(call) = &command.work else { continue };
        match &*call.request {
            KernelRequest::ScaledAttention(of) => forward.push(*of),
            KernelRequest::ScaledAttentionGrad(_) => gradients += 1,
            _ => {}
        }
    }
    (forward, gradients)
}

/// How many of both.
fn count(plan: &Plan) -> (usize, usize) {
    let (forward, gradients) = found(plan);
    (forward.len(), gradients)
}

const SHAPE: [u64; 4] = [2, 3, 16, 8];

fn narrowed(m: &mut Making, shares: Output) -> Output {
    m.cast(shares, m.of)
}

fn with_mask(m: &mut Making, scores: Output, shape: &[u64]) -> Output {
    let (scaled, mask) = (m.scaled(scores), m.fed("mask", shape));
    m.op("AddV2", &[scaled, mask])
}

#[test]
fn attention_is_one_work_and_its_gradient_another() {
    let scaled: Between = |m, scores| m.scaled(scores);
    let causal: Between = |m, scores| with_mask(m, scores, &[16, 16]);
    let padding: Between = |m, scores| with_mask(m, scores, &[2, 1, 1, 16]);
    let bare: Between = |_, value| value;
    let turned: Between = |m, scores| {
        let (two, mask, scores) = (m.number(2.0), m.fed("mask", &[16, 16]), m.cast(scores, DataType::Float));
        let divided = m.op("RealDiv", &[scores, two]);
        m.op("AddV2", &[mask, divided])
    };
    let sizes = |bias: Option<[u64; 4]>| bias.map(|sizes| ScoreBias { data_type: DataType::Float, sizes });
    for (shape, score, share, scale, bias) in [
        (&SHAPE[..], scaled, narrowed as Between, 0.5, None),
        (&SHAPE[..], causal, narrowed, 0.5, Some([1, 1, 16, 16])),
        (&SHAPE[..], padding, narrowed, 0.5, Some([2, 1, 1, 16])),
        (&SHAPE[..], turned, narrowed, 0.5, Some([1, 1, 16, 16])),
        (&SHAPE[..], bare, bare, 1.0, None),
        (&[6, 16, 8], scaled, narrowed, 0.5, None),
        (&[16, 8], scaled, narrowed, 0.5, None),
    ] {
        for is_trained in [false, true] {
            let (forward, gradients) = found(&planned(shape, is_trained, score, share));
            let [of] = &forward[..] else { panic!("{shape:?}, trained {is_trained}: {forward:?}") };
            let [batch, heads] = match *shape {
                [batch, heads, ..] if shape.len() == 4 => [batch, heads],
                [batch, ..] if shape.len() == 3 => [batch, 1],
                _ => [1, 1],
            };
            let (rows, width, data_type) = (16, 8, DataType::Bfloat16);
            let bias = sizes(bias);
            let expected = ScaledAttention {
                data_type,
                batch,
                heads,
                rows,
                keys: rows,
                width,
                value_width: width,
                scale,
                bias,
                kept: None,
                sums: is_trained,
                lies: [Lies::ByHeads; 4],
            };
            assert_eq!((of, gradients), (&expected, usize::from(is_trained)));
        }
    }
}

#[test]
fn what_something_else_needs_stays() {
    let other: [(&str, Between, Between); 7] = [
        (
            "shares that are fetched",
            |m, scores| m.scaled(scores),
            |m, shares| {
                m.fetched.push(shares);
                narrowed(m, shares)
            },
        ),
        (
            "scores that are fetched",
            |m, scores| {
                let scaled = m.scaled(scores);
                m.fetched.push(scaled);
                scaled
            },
            narrowed,
        ),
        (
            "scores that are read twice",
            |m, scores| {
                let scaled = m.scaled(scores);
                let squares = m.op("Square", &[scaled]);
                m.fetched.push(squares);
                scaled
            },
            narrowed,
        ),
        (
            "two masks",
            |m, scores| {
                let (once, other) = (with_mask(m, scores, &[16, 16]), m.fed("other", &[16, 16]));
                m.op("AddV2", &[once, other])
            },
            narrowed,
        ),
        (
            "a number behind the mask",
            |m, scores| {
                let (masked, half) = (with_mask(m, scores, &[16, 16]), m.number(0.5));
                m.op("Mul", &[masked, half])
            },
            narrowed,
        ),
        (
            "a condition for a number that is not low",
            |m, scores| {
                let (scaled, mask, low) = (m.scaled(scores), m.fed("mask", &[16, 16]), m.number(-1e4));
                let is_seen = m.op("Greater", &[mask, low]);
                m.op("SelectV2", &[is_seen, scaled, low])
            },
            narrowed,
        ),
        (
            "a factor that is fed",
            |m, scores| {
                let (floats, factor) = (m.cast(scores, DataType::Float), m.fed("factor", &[]));
                m.op("Mul", &[floats, factor])
            },
            narrowed,
        ),
    ];
    for (what, score, share) in other {
        for is_trained in [false, true] {
            assert_eq!(count(&planned(&SHAPE, is_trained, score, share)), (0, 0), "{what}, trained {is_trained}");
        }
    }
    // Keys as columns.
    assert_eq!(count(&planned_with(&[2, 3, 16, 16], false, false, |m, scores| m.scaled(scores), narrowed)), (0, 0));
}

#[test]
fn gradients_that_are_wanted_of_a_part_stay() {
    // Without that by K; with that by a mask, and by nothing but V.
    let fewer: Between = |m, scores| {
        m.wanted.remove(1);
        m.scaled(scores)
    };
    let values: Between = |m, scores| {
        m.wanted.drain(..2);
        m.scaled(scores)
    };
    let learned: Between = |m, scores| {
        let masked = with_mask(m, scores, &[16, 16]);
        let mask = m.g.graph().tensor("mask:0").unwrap();
        m.wanted.push(mask);
        masked
    };
    for score in [fewer, values, learned] {
        assert_eq!(count(&planned(&SHAPE, false, score, narrowed)), (1, 0));
        assert_eq!(count(&planned(&SHAPE, true, score, narrowed)), (0, 0));
    }
}
